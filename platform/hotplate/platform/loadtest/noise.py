"""How much a figure of two runs of one shape differs by chance: a bootstrap of their steps; pure.

It is a paired moving-block bootstrap (Künsch, "The jackknife and the bootstrap for general
stationary observations", 1989). Step i of both runs had the same load, so pairs of steps are drawn,
which takes the shape itself out of the noise; and they are drawn in blocks, since a slow step is
followed by a slow one, and steps that were drawn one by one would make the noise look too small.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

DRAWS = 400
CONFIDENCE = 0.95
LEAST_STEPS = 8
"""From fewer steps no noise is known."""


class Sums(NamedTuple):
    """Of some steps of one run."""

    asked: float = 0.0
    weighted_p95_s: float = 0.0
    """The p95 of each step times what was asked in it."""
    weight: float = 0.0
    """What was asked in steps that have a p95."""
    answered: float = 0.0
    failed: float = 0.0
    refused: float = 0.0
    replicas: float = 0.0


Pair = tuple[Sums, Sums]
"""The sums of the same steps, before and after."""


class Noise:
    """Of two series, as reports have them; they are drawn once for all figures."""

    def __init__(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        self._draws = _draws(before, after)
        """First the sums of all steps, and then those of each draw; none where there are too few
        steps, or steps of different lengths."""

    def of(self, change: Callable[[Sums, Sums], float | None]) -> float | None:
        """Within which `CONFIDENCE` of the draws' changes are from that of all steps; None = not
        known. A draw of which there is no change (one run has nothing in it) says nothing."""
        found = [change(*pair) for pair in self._draws]
        if not found or found[0] is None:
            return None
        measured = found[0]
        off = sorted(abs(one - measured) for one in found[1:] if one is not None)
        return off[math.ceil(CONFIDENCE * len(off)) - 1] if off else None


def _draws(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Pair]:
    if before["step_s"] != after["step_s"]:
        return []
    first, second = _steps(before), _steps(after)
    # A step that only one of them has: the other had got its last answer by then.
    count = max(len(first), len(second))
    first += [Sums()] * (count - len(first))
    second += [Sums()] * (count - len(second))
    if count < LEAST_STEPS:
        return []
    length = max(2, round(count ** (1 / 3)))  # the rate at which a block's length is best
    rng = random.Random(0)  # the same two reports have the same noise
    totals = _running_totals(first), _running_totals(second)
    draws: list[Pair] = [(totals[0][-1], totals[1][-1])]
    for _ in range(DRAWS):
        begins = [rng.randrange(count - length + 1) for _ in range(-(-count // length))]
        draws.append((_drawn(totals[0], begins, length), _drawn(totals[1], begins, length)))
    return draws


def _steps(series: Mapping[str, Any]) -> list[Sums]:
    columns = (
        series[name]
        for name in ("asked", "answered", "failed", "refused", "p95_s", "ready", "starting")
    )
    found = []
    for asked, answered, failed, refused, p95_s, ready, starting in zip(*columns, strict=True):
        weight = 0 if p95_s is None else asked
        replicas = (ready or 0) + (starting or 0)
        found.append(
            Sums(asked, weight * (p95_s or 0.0), weight, answered, failed, refused, replicas)
        )
    return found


def _running_totals(steps: Iterable[Sums]) -> list[Sums]:
    return list(accumulate(steps, _added, initial=Sums()))


def _added(one: Sums, other: Sums) -> Sums:
    return Sums(*(a + b for a, b in zip(one, other, strict=True)))


def _drawn(totals: Sequence[Sums], begins: Iterable[int], length: int) -> Sums:
    """The sums of the blocks that begin at these steps."""
    blocks = [
        [b - a for a, b in zip(totals[begin], totals[begin + length], strict=True)]
        for begin in begins
    ]
    return Sums(*map(sum, zip(*blocks, strict=True)))
