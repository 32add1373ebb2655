"""How demand, replicas and waits went over a simulated time, in bins of equal length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hotplate.autoscaler.simulator.fleet import SimulatedDeployment


@dataclass(frozen=True)
class Timeline:
    """One figure per bin."""

    bin_s: float
    """How long a bin is; the first begins with the first arrival."""
    demand: list[float]
    """Requests in flight and queued, the mean."""
    replicas: list[float]
    """Those that cost: starting, ready, draining; the mean."""
    wait_s: list[float]
    """The mean wait of the requests that came in the bin; 0 where none came."""


def timeline(fleets: Sequence[SimulatedDeployment], bins: int = 600) -> Timeline:
    """Of all fleets together, from the first arrival until the last replica has stopped."""
    began = min(fleet.arrivals.arrival_s[0] for fleet in fleets)
    ended = max([began, *(fleet.changes[-1][0] for fleet in fleets if fleet.changes)])
    width_s = (ended - began) / bins or 1.0
    demand: list[tuple[float, int]] = []
    waits: list[list[float]] = [[] for _ in range(bins)]
    for fleet in fleets:
        arrivals = fleet.arrivals
        for at, wait_s, service_s in zip(
            arrivals.arrival_s, fleet.waits_s, arrivals.service_s, strict=True
        ):
            demand += ((at, 1), (at + wait_s + service_s, -1))
            waits[min(bins - 1, int((at - began) / width_s))].append(wait_s)
    changes = [change for fleet in fleets for change in fleet.changes]
    return Timeline(
        bin_s=width_s,
        demand=_means(demand, began, width_s, bins),
        replicas=_means(changes, began, width_s, bins),
        wait_s=[sum(some) / len(some) if some else 0.0 for some in waits],
    )


def _means(
    changes: Iterable[tuple[float, int]], began: float, width_s: float, bins: int
) -> list[float]:
    """The mean level of each bin, where `changes` are (time, step)."""
    areas = [0.0] * bins
    level, at, number = 0, began, 0
    for until, step in [*sorted(changes), (began + bins * width_s, 0)]:
        while at < until:
            last = number == bins - 1
            end = until if last else min(until, began + (number + 1) * width_s)
            areas[number] += level * (end - at)
            at = end
            if end < until:
                number += 1
        level += step
    return [area / width_s for area in areas]
