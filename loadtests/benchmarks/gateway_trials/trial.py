"""One trial of a front: what is done with it, and the figures that come of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from loadtests.harness.report import median
from loadtests.harness.route_plan import Plan
from loadtests.systems.proxies import Front

ROUNDS = 3


@dataclass(frozen=True)
class Figure:
    """A row of the gateway's table."""

    what: str
    """With its unit."""
    digits: int = 1
    bound: str = ""
    """What is to be reached, as a text; empty = it is shown beside the others only."""
    holds: Callable[[float, float | None], bool] = lambda ours, haproxys: True
    """Whether our figure, beside HAProxy's if that is there, reaches the bound."""
    of_rounds: Callable[[Iterable[float]], float] = median
    above_direct: bool = False
    """What the same round gave with nothing between is taken off it."""


@dataclass(frozen=True)
class Trial:
    """Done with each of its fronts in each round."""

    name: str
    plan: Plan
    fronts: tuple[str, ...]
    sample: Callable[[Front, Path, bool], Awaitable[Mapping[str, float]]]
    """The figures of one round of one front; in small if the flag says so."""
    figures: Mapping[str, Figure]
    heavy: tuple[str, ...] = ()
    """Fronts that are slow to start, and busy when idle: they get their rounds afterwards."""
    heavy_rounds: int = ROUNDS
    together: str = ""
    """All fronts at once, those of neighbours in the same group too: such a load hardly uses the
    processor. Empty = one front after the other."""
    pinned: bool = False
    """The front has a core of its own; everything else is on the other one."""
    rounds: int = ROUNDS
