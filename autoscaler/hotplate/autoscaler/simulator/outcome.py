"""What a simulated policy cost, and how long its requests waited."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hotplate.autoscaler.simulator.fleet import SimulatedDeployment

HOUR_S = 3600.0


@dataclass(frozen=True)
class GpuHours:
    """Of all replicas, each of which holds one GPU; draining with work is busy."""

    busy: float
    idle: float
    starting: float
    standby: float

    @property
    def total(self) -> float:
        return self.busy + self.idle + self.starting + self.standby


@dataclass(frozen=True)
class Waits:
    """Seconds from a request's arrival until it has a slot."""

    mean: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class Occupancy:
    """Means over the span from the first arrival to the last request's end."""

    queued: float
    running: float
    span_s: float


@dataclass(frozen=True)
class Outcome:
    """One policy on one trace."""

    gpu_hours: GpuHours
    starts: int
    requests: int
    wait_s: Waits
    share_over_1s: float
    share_over_5s: float
    cold_hits: int
    """Requests that found no ready replica of their deployment."""
    occupancy: Occupancy

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for name, value in vars(self).items():
            data[name] = dict(vars(value)) if hasattr(value, "__dict__") else value
        data["gpu_hours"]["total"] = self.gpu_hours.total
        return data


def outcome(fleets: Sequence[SimulatedDeployment], standby_s: float = 0.0) -> Outcome:
    """Figures of fleets whose simulation is over; at least one request."""
    waits = sorted(wait for fleet in fleets for wait in fleet.waits_s)
    began = min(fleet.arrivals.arrival_s[0] for fleet in fleets)
    ended = max(fleet.ended_at for fleet in fleets)
    span_s = ended - began
    return Outcome(
        gpu_hours=GpuHours(
            busy=sum(fleet.busy_s for fleet in fleets) / HOUR_S,
            idle=sum(fleet.idle_s for fleet in fleets) / HOUR_S,
            starting=sum(fleet.starting_s for fleet in fleets) / HOUR_S,
            standby=standby_s / HOUR_S,
        ),
        starts=sum(fleet.starts for fleet in fleets),
        requests=len(waits),
        wait_s=Waits(
            math.fsum(waits) / len(waits),
            percentile(waits, 50),
            percentile(waits, 95),
            percentile(waits, 99),
        ),
        share_over_1s=sum(wait > 1 for wait in waits) / len(waits),
        share_over_5s=sum(wait > 5 for wait in waits) / len(waits),
        cold_hits=sum(fleet.cold_hits for fleet in fleets),
        occupancy=Occupancy(
            queued=sum(fleet.queued_area for fleet in fleets) / span_s if span_s else 0.0,
            running=sum(fleet.running_area for fleet in fleets) / span_s if span_s else 0.0,
            span_s=span_s,
        ),
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Nearest rank: the least value that `percent` of all do not exceed."""
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]
