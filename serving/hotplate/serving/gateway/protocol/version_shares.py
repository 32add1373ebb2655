"""Which part of a deployment's requests each version beside `main` gets. Pure.

A request has a point in [0, 100): the hash of a value, or the next of a sequence that spreads
evenly. A version has some parts of that range, as long together as its weight; `main` has the rest.
So that callers keep their version, a version keeps its parts while weights change: one that grows
takes its new parts from `main` alone, and one that shrinks gives back what it took last. Those
that are new take from the two ends by turns, so that two versions never meet, whichever grows.
For three or more that is only certain if each layout begins with the last one, because no rule
that knows the weights alone can promise it: then the parts have to be stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

MAIN: Final = "main"
"""The id of the version that gets what the others leave: the deployment's public route itself."""
WHOLE: Final = 100.0

Part = tuple[float, float]
"""From a point of [0, 100) up to another one, which is not in it."""


@dataclass(frozen=True)
class VersionShare:
    """A version beside `main`, of a deployment with a canary."""

    id: str
    route: str
    """The name of the route that has its queue and replicas."""
    weight: float
    """Percent of the requests that name no version."""
    parts: tuple[Part, ...] = ()
    """The parts that it had, in the order in which it took them; `laid_out` makes them as long as
    its weight."""


def laid_out(versions: Sequence[VersionShare]) -> tuple[VersionShare, ...]:
    """The versions with parts as long as their weights. Each keeps of its parts as much as its
    weight allows, the earliest first, and takes the rest from what nobody has: every other version
    from the upper end. Weights beyond 100 together get what is left."""
    kept = [_shortened(version.parts, version.weight) for version in versions]
    for number, version in enumerate(versions):
        missing = version.weight - sum(end - start for start, end in kept[number])
        free = _free([part for parts in kept for part in parts])
        taken = _from_above(free, missing) if number % 2 else _from_below(free, missing)
        kept[number] = _joined([*kept[number], *taken])
    return tuple(replace(v, parts=tuple(parts)) for v, parts in zip(versions, kept, strict=True))


def _shortened(parts: Sequence[Part], weight: float) -> list[Part]:
    """The first parts of that length together. A part that lies at the upper end has grown
    downwards, and shrinks upwards."""
    found, left = [], weight
    for start, end in parts:
        length = min(end - start, left)
        if length > 0:
            found.append((end - length, end) if end == WHOLE else (start, start + length))
        left -= length
    return found


def _free(taken: Sequence[Part]) -> list[Part]:
    found, at = [], 0.0
    for start, end in sorted(taken):
        if start > at:
            found.append((at, start))
        at = max(at, end)
    return [*found, (at, WHOLE)] if at < WHOLE else found


def _from_below(free: Sequence[Part], length: float) -> list[Part]:
    found = []
    for start, end in free:
        took = min(end - start, length)
        if took > 0:
            found.append((start, start + took))
        length -= took
    return found


def _from_above(free: Sequence[Part], length: float) -> list[Part]:
    found = []
    for start, end in reversed(free):
        took = min(end - start, length)
        if took > 0:
            found.append((end - took, end))
        length -= took
    return found


def _joined(parts: Sequence[Part]) -> list[Part]:
    """The parts in their order, with those in one that follow each other without a gap."""
    found: list[Part] = []
    for start, end in parts:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], end)
        elif found and found[-1][0] == end:
            found[-1] = (start, found[-1][1])
        else:
            found.append((start, end))
    return found
