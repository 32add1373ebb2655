"""The autoscaler's deciders, one per service that answers requests, fed by the gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hotplate.autoscaler.decider import Decider
from hotplate.autoscaler.policy import Decision, Demand, Replicas
from hotplate.deploy.engine import Replica, ReplicaState, WorkloadKey
from hotplate.platform.controller.workloads import Service
from hotplate.serving.gateway.routes import RouteDemand

_LIVE = (ReplicaState.READY, ReplicaState.UNREADY)
_COMING = (ReplicaState.PENDING, ReplicaState.STARTING, ReplicaState.BACKOFF)


@dataclass(frozen=True)
class Wish:
    """One decision with what it was made from."""

    key: WorkloadKey
    decision: Decision
    demand: Demand
    replicas: Replicas


class Scaling:
    """Deciders by workload. What one has learnt outlives the process through `learnt`."""

    def __init__(self, learnt: Callable[[WorkloadKey], Any | None]) -> None:
        self._learnt = learnt
        self._deciders: dict[WorkloadKey, Decider] = {}

    def wish(
        self,
        service: Service,
        demand: RouteDemand | None,
        replicas: Sequence[Replica],
        draining: frozenset[str],
        now: float,
        wall: float,
    ) -> Wish:
        """How many replicas the service should have. `now` in loop seconds, `wall` in Unix ones."""
        key = service.workload.key
        decider = self._deciders.get(key)
        if decider is None:
            decider = self._deciders[key] = Decider.restored(service.policy, self._learnt(key), now)
        counted = None
        if demand is not None:
            counted = Demand(demand.in_flight, demand.queued, demand.service_s)
        decider.observe(counted, now)
        there = counts(replicas, draining, now, wall)
        return Wish(key, decider.decide(there, now), counted or Demand(), there)

    def next_at(self, key: WorkloadKey) -> float | None:
        """When, without any change, the wish could differ at the earliest (loop seconds)."""
        decider = self._deciders.get(key)
        return decider.next_at if decider else None

    def ready_after(self, key: WorkloadKey, cold_start_s: float) -> None:
        """Teach the length of a cold start."""
        if decider := self._deciders.get(key):
            decider.ready_after(cold_start_s)

    def forget(self, keep: Iterable[WorkloadKey]) -> None:
        kept = set(keep)
        self._deciders = {key: d for key, d in self._deciders.items() if key in kept}

    def to_json(self) -> Mapping[str, Any]:
        """What the deciders have learnt, by workload."""
        return {str(key): decider.to_json() for key, decider in self._deciders.items()}


def counts(
    replicas: Sequence[Replica], draining: frozenset[str], now: float, wall: float
) -> Replicas:
    """Replicas as the decider sees them: those that drain are gone already."""
    mine = [replica for replica in replicas if replica.id not in draining]
    ready = sum(replica.state in _LIVE for replica in mine)
    starting = [now - (wall - r.created_at) for r in mine if r.state in _COMING]
    return Replicas(ready, tuple(sorted(starting)))
