"""What one more replica of a service will take of the memory: what others took when they were new.

Pure. What a replica gathers in hours, the next one does not begin with: a leak must not keep the
revision without it from starting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from hotplate.deploy.local.runtime import Warm
from hotplate.deploy.process.memory import Memory
from hotplate.deploy.workload import WorkloadKey

SERVICES_KEPT = 1000
"""How many services are known; beyond that, the one that was read least recently is dropped."""
FALLS_TO = 0.75
"""A footprint grows at once, and shrinks when no more than this is left of it: what is placed by it
is not to come and go with every reading."""

FRESH_S = 120.0
"""A replica is new for so long: what it loads with its first requests counts."""

_Service = tuple[str, str, str]


@dataclass(frozen=True)
class MemoryReading:
    """What one ready replica was found to take."""

    memory: Memory
    ready_for_s: float
    warm: Warm | None
    """What its last start could have been from."""
    forked: bool
    """Whether a template has forked it."""


@dataclass(frozen=True)
class Footprint:
    """Of one service, in bytes."""

    own_bytes: int
    """Of a fork, if any of its replicas was forked."""
    alone_bytes: int
    """Of a process that shares nothing."""
    warm: Warm | None


class Footprints:
    """Of all services, whatever their revision: the next one is much like the last."""

    def __init__(self, kept: Sequence[Sequence[Any]] = ()) -> None:
        """`kept` is what an earlier one knew (its `to_json`). Raises ValueError and TypeError if it
        is anything else."""
        self._known: dict[_Service, Footprint] = {
            (str(organization), str(deployment), str(service)): Footprint(
                int(own), int(alone), None
            )
            for organization, deployment, service, own, alone in kept
        }

    def to_json(self) -> list[list[Any]]:
        """What is known, for the next one; not what the last starts could have been from."""
        known = sorted(self._known.items(), key=lambda item: item[0])
        return [[*service, one.own_bytes, one.alone_bytes] for service, one in known]

    def of(self, key: WorkloadKey) -> Footprint | None:
        """None where no replica of it has been read."""
        return self._known.get(_service(key))

    def note(self, readings: Mapping[WorkloadKey, Sequence[MemoryReading]]) -> None:
        """What the replicas that are ready take now, by their workload."""
        by_service: dict[_Service, list[MemoryReading]] = {}
        for key, found in readings.items():
            # A replica that has just ended takes nothing, which says nothing of the next one.
            there = [each for each in found if each.memory.alone_bytes]
            fresh = [each for each in there if each.ready_for_s < FRESH_S]
            by_service.setdefault(_service(key), []).extend(fresh)
        for service, fresh in by_service.items():
            if fresh:
                before = self._known.pop(service, None)
                self._known[service] = _footprint(fresh, before)
        while len(self._known) > SERVICES_KEPT:
            del self._known[next(iter(self._known))]


def _service(key: WorkloadKey) -> _Service:
    return key.organization, key.deployment, key.service


def _footprint(readings: Sequence[MemoryReading], before: Footprint | None) -> Footprint:
    """Their mean."""
    forks = [each for each in readings if each.forked] or readings
    own_bytes = round(fmean(each.memory.own_bytes for each in forks))
    alone_bytes = round(fmean(each.memory.alone_bytes for each in readings))
    warm = next((each.warm for each in reversed(readings) if each.warm), None)
    if before is not None:
        warm = warm or before.warm
        own_bytes = _steady(before.own_bytes, own_bytes)
        alone_bytes = _steady(before.alone_bytes, alone_bytes)
    return Footprint(own_bytes, max(own_bytes, alone_bytes), warm)


def _steady(before_bytes: int, now_bytes: int) -> int:
    grown = now_bytes > before_bytes
    return now_bytes if grown or now_bytes <= FALLS_TO * before_bytes else before_bytes
