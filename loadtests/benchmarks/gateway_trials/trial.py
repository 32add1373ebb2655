"""One trial of a proxy: what is done with it, and the figures that come of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from loadtests.harness.report import median
from loadtests.harness.route_plan import Plan
from loadtests.systems.proxies import Proxy

ROUNDS = 3


@dataclass(frozen=True)
class Figure:
    """A row of the gateway's table."""

    what: str
    """With its unit."""
    digits: int = 1
    bound: str = ""
    """What our figure has to reach, as text; empty = nothing."""
    holds: Callable[[float, float | None], bool] = lambda ours, haproxy: True
    """Whether our figure reaches the bound; the second argument is HAProxy's, if there is one."""
    of_rounds: Callable[[Iterable[float]], float] = median
    above_direct: bool = False
    """Whether the value of the same round without a proxy is subtracted."""


@dataclass(frozen=True)
class Trial:
    """What is done with each of its proxies in each round."""

    name: str
    plan: Plan
    proxies: tuple[str, ...]
    sample: Callable[[Proxy, Path, bool], Awaitable[Mapping[str, float]]]
    """Measures the figures of one round of one proxy; the flag asks for a quick round."""
    figures: Mapping[str, Figure]
    heavy: tuple[str, ...] = ()
    """Peers that are slow to start, and busy when idle: they have their rounds afterwards."""
    heavy_rounds: int = ROUNDS
    together: str = ""
    """The name of a group of neighbouring trials that run at once, with all their proxies, as they
    hardly use the processor. Empty = one proxy after another."""
    pinned: bool = False
    """The proxy has a core of its own; everything else is on the other one."""
    rounds: int = ROUNDS
