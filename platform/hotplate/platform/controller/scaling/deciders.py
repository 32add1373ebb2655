"""The autoscaler's deciders, one per service that answers requests, fed by the gateways.

A decider sees the demand of its service and recommends a number of replicas (`Recommendation`), by
the rules of `hotplate.autoscaler`; where a deployment names queries, `query_watch` asks Prometheus
and the answers switch its entry service on and off. What is recommended is not yet what a service
gets: `allocations` shares out what there is among all deployments and holds them to quotas.
`demand_log` keeps what deciders saw, so that `hotplate simulate` can replay it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hotplate.autoscaler.binary import BinaryDecider, Reading
from hotplate.autoscaler.decider import Decider
from hotplate.autoscaler.errors import MemoryInvalid
from hotplate.autoscaler.policy import Cause, Decision, Demand, Policy, Replicas
from hotplate.autoscaler.rules.schedule import Floor
from hotplate.autoscaler.sharing.allocation import Allocation
from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.deploy.workload import WorkloadKey
from hotplate.platform.controller.planning.workloads import Service
from hotplate.platform.spec.annotations import BinarySpec as Annotated
from hotplate.serving.gateway.protocol.routes import RouteDemand

log = logging.getLogger("hotplate.scaling")

_LIVE = (ReplicaState.READY, ReplicaState.UNREADY)
_COMING = (ReplicaState.PENDING, ReplicaState.STARTING, ReplicaState.BACKOFF)


@dataclass(frozen=True)
class Recommendation:
    """One decision with what it was made from."""

    key: WorkloadKey
    decision: Decision
    demand: Demand
    replicas: Replicas
    grant: Allocation | None = None
    """What of it the service gets; None = not known yet."""
    slots: str = ""
    """How many a replica has, and where that is from."""

    @property
    def outline(self) -> tuple[int, bool, int]:
        """What makes a decision another one: how many, whether that is a blind guess, and how many
        of them are granted.

        Which rule holds the same number, and by which figures, moves with every request.
        """
        return self.decision.desired, self.decision.cause is Cause.NO_REPORT, self.granted

    @property
    def granted(self) -> int:
        """How many of them the service gets."""
        desired = self.decision.desired
        return desired if self.grant is None else min(desired, self.grant.replicas)

    @property
    def reason(self) -> str:
        """Why so many are wanted, and why no more of them are granted."""
        cut = self.grant.reason if self.grant else ""
        return f"{self.decision.reason}; {cut}" if cut else self.decision.reason


class Scaling:
    """Deciders by workload; a new revision's goes on with what the last one's has learnt."""

    def __init__(self) -> None:
        self._deciders: dict[WorkloadKey, Decider] = {}
        self._observed: dict[WorkloadKey, RouteDemand] = {}
        """What the decider of each was shown last: a report's peak counts once."""
        self._early: dict[WorkloadKey, list[float]] = {}
        """Cold starts of revisions that have no decider yet: those of their roll-outs."""
        self._binaries: dict[int, tuple[Annotated, BinaryDecider]] = {}
        """By deployment: a new revision is as on or off as the one before."""

    def recommend(
        self,
        service: Service,
        slots: int,
        demand: RouteDemand | None,
        there: Replicas,
        now: float,
        *,
        memory: Mapping[str, Any] | None,
        floor: tuple[Floor, float] | None = None,
        price_gpu_s: float = Policy.price_gpu_s,
    ) -> Recommendation:
        """How many replicas the service should have; `demand` None = the gateway is not heard.

        `slots` is what a replica takes of it at a time.
        `memory` is what an earlier decider of the service had learnt. `floor` is what a schedule
        asks for, and until when. `price_gpu_s`: what one avoided cold start is worth. All times in
        loop seconds.
        """
        key = service.workload.key
        decider = self._deciders.get(key)
        if decider is None:
            decider = self._deciders[key] = _decider(service, memory, now)
            for cold_start_s in self._early.pop(key, ()):
                decider.record_cold_start(cold_start_s)
        counted, peak = None, 0
        if demand is not None:
            counted = Demand(
                demand.in_flight,
                demand.queued,
                demand.service_s,
                demand.oldest_at,
                demand.completed,
            )
            if demand is not self._observed.get(key):
                self._observed[key], peak = demand, demand.peak
        decider.set_price(price_gpu_s)
        decider.set_concurrency(slots)
        decider.observe(counted, now, peak)
        if floor is not None:
            decider.set_floor(floor[0].replicas, floor[0].rule, floor[1])
        else:
            decider.set_floor(0, "", math.inf)
        return Recommendation(key, decider.decide(there, now), counted or Demand(), there)

    def switch(
        self,
        deployment_id: int,
        annotated: Annotated,
        readings: Sequence[Reading],
        recommendation: Recommendation,
        *,
        busy: int,
        now: float,
        memory: Mapping[str, Any],
        wall: float,
    ) -> Recommendation:
        """What is recommended for a deployment that queries turn on and off, whatever its demand.

        `busy` of its replicas have something to do. `memory` and `wall` (Unix seconds) are as in
        `memory`.
        """
        known, binary = self._binaries.get(deployment_id, (None, None))
        live = recommendation.replicas.live
        if binary is None or known != annotated:
            before, away_s = _before(memory, annotated, wall) if known is None else (None, 0.0)
            binary = BinaryDecider(annotated.policy, live, now, before, away_s)
            self._binaries[deployment_id] = annotated, binary
        return replace(
            recommendation, decision=binary.decide(readings, busy=busy, live=live, now=now)
        )

    def unswitch(self, deployment_id: int) -> None:
        """It has no queries now: should it have some again, what they said is long past."""
        self._binaries.pop(deployment_id, None)

    def record_cold_start(self, key: WorkloadKey, cold_start_s: float) -> None:
        """Teach the length of a cold start, seconds."""
        if decider := self._deciders.get(key):
            decider.record_cold_start(cold_start_s)
        else:
            self._early.setdefault(key, []).append(cold_start_s)

    def gateway_restarted(self, now: float) -> None:
        """A gateway is there again at `now` (loop seconds): no demand was seen until then."""
        for decider in self._deciders.values():
            decider.gateway_restarted(now)

    def memory(
        self, key: WorkloadKey, now: float, wall: float, deployment_id: int
    ) -> dict[str, Any]:
        """What the workload's decider has learnt, and where its deployment's queries stand, as
        JSON: for after a restart."""
        learnt = self._deciders[key].memory(now)
        if deployment_id in self._binaries:
            annotated, binary = self._binaries[deployment_id]
            learnt["binary"] = binary.memory(now) | {"queries": list(annotated.queries), "at": wall}
        return learnt

    def known(self) -> set[WorkloadKey]:
        """Workloads that have a decider."""
        return set(self._deciders)

    def forget(self, gone: Callable[[WorkloadKey], bool]) -> None:
        """Drop the deciders of workloads that `gone` is true of."""
        self._deciders = {key: d for key, d in self._deciders.items() if not gone(key)}
        self._observed = {key: d for key, d in self._observed.items() if not gone(key)}
        self._early = {key: starts for key, starts in self._early.items() if not gone(key)}


def _decider(service: Service, memory: Mapping[str, Any] | None, now: float) -> Decider:
    try:
        return Decider(service.policy, now=now, memory=memory)
    except MemoryInvalid as error:
        log.warning("%s: what was learnt is not used: %s", service.workload.key, error)
        return Decider(service.policy, now=now)


def _before(
    memory: Mapping[str, Any], annotated: Annotated, wall: float
) -> tuple[Mapping[str, Any] | None, float]:
    """What is kept of the same queries, None if nothing that can be used, and how old it is."""
    kept = memory.get("binary")
    if not isinstance(kept, dict) or kept.get("queries") != list(annotated.queries):
        return None, 0.0
    at = kept.get("at")
    if not isinstance(at, int | float) or not 0 <= at < math.inf:
        return None, 0.0
    return kept, max(0.0, wall - at)


def counts(
    replicas: Sequence[Replica], draining: frozenset[str], begun: Mapping[str, float]
) -> Replicas:
    """Replicas as the decider sees them: those that drain are gone already. `begun`: when each of
    them was asked for, loop seconds."""
    mine = [replica for replica in replicas if replica.id not in draining]
    ready = sum(replica.state in _LIVE for replica in mine)
    starting = [begun[replica.id] for replica in mine if replica.state in _COMING]
    return Replicas(ready, tuple(sorted(starting)))
