"""How many replicas there were and what they did, by what was observed once a second; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hotplate.platform.loadtest.observation import Observation
from hotplate.platform.loadtest.tally import Steps

COLUMNS = ("queued", "in_flight", "ready", "starting")


@dataclass(frozen=True)
class ReplicaTime:
    """Replica-seconds of a run by what the replicas did, or GPU-seconds where they have GPUs."""

    busy: float
    """With a request at least."""
    idle: float
    starting: float
    of_gpus: bool

    @property
    def total(self) -> float:
        return self.busy + self.idle + self.starting

    def to_json(self) -> dict[str, float]:
        return {name: round(getattr(self, name), 3) for name in ("busy", "idle", "starting")}


def replica_time(
    observations: Sequence[Observation], ended_at_s: float, starts_s: Sequence[float] = ()
) -> ReplicaTime | None:
    """From second 0 on, each observation until the next one; None where there are none. Starting is
    at least what the starts took, by their records: a fork is ready between two observations.

    The gateway gives the next request to the replica with the most free slots, so as many replicas
    are busy as there are requests in flight.
    """
    if not observations:
        return None
    of_gpus = any(one.gpus for one in observations)
    busy = idle = starting = 0.0
    ended_at_s = max(0.0, ended_at_s)
    edges = [min(max(0.0, one.at_s), ended_at_s) for one in observations]
    for one, (begun_s, until_s) in zip(observations, pairwise([*edges, ended_at_s]), strict=True):
        amount = (until_s - begun_s) * (one.gpus if of_gpus else 1.0)
        working = min(one.ready, one.in_flight)
        busy += working * amount
        idle += (one.ready - working) * amount
        starting += one.starting * amount
    recorded = sum(starts_s) * (observations[-1].gpus if of_gpus else 1.0)
    return ReplicaTime(busy, idle, max(starting, recorded), of_gpus)


def by_step(observations: Sequence[Observation], steps: Steps) -> dict[str, list[Any]]:
    """Of each step the observation with the most requests, queued and in flight; where a step has
    none, the last before. None before the first."""
    busiest: list[Observation | None] = [None] * steps.count
    last_of: list[Observation | None] = [None] * steps.count
    for one in observations:
        step = steps.at(one.at_s)
        found = busiest[step]
        if found is None or one.queued + one.in_flight > found.queued + found.in_flight:
            busiest[step] = one
        last_of[step] = one
    last: Observation | None = None
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for chosen, newest in zip(busiest, last_of, strict=True):
        shown = chosen or last
        for name, values in columns.items():
            values.append(None if shown is None else getattr(shown, name))
        last = newest or last
    return columns
