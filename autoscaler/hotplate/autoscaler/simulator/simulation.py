"""Drives deployments through a trace in virtual time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from hotplate.autoscaler.policy import Decision
from hotplate.autoscaler.sharing.allocation import (
    NO_QUOTA,
    Allocation,
    AllocationRequest,
    Quota,
    allocate,
)
from hotplate.autoscaler.sharing.amounts import UNLIMITED, Amounts
from hotplate.autoscaler.simulator.fleet import Begun, SimulatedDeployment, SimulatedReplica
from hotplate.autoscaler.simulator.scaler import MAX_REPLICAS
from hotplate.autoscaler.simulator.standby_pool import SimulatedPool
from hotplate.autoscaler.standby.planner import StandbyPolicy

EPSILON_S = 1e-6
"""A decision that asks to be made again at once is made this much later: time must go on."""


FINISH, READY, MADE, ARRIVE, DECIDE = range(5)
"""What happens; of what happens at the same time the lowest comes first."""


@dataclass(frozen=True)
class Decided:
    """Another number of replicas is desired, or granted, because of this or another deployment.

    In the order in which they are told, `granted` is never more than there is.
    """

    at_s: float
    deployment: str
    live: int
    desired: int
    granted: int
    reason: str


@dataclass(frozen=True)
class Hardware:
    """What replicas run on, and who may have how much of it."""

    cold_start_s: float
    """Every start takes that long, and so does making an instance ready."""
    standby_start_s: float = 0.0
    """A start on an instance that is ready takes that long."""
    instances: float = math.inf
    """GPUs that there are."""
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    standby: StandbyPolicy | None = None
    """None = no instance is kept ready."""

    @property
    def scarce(self) -> bool:
        return self.instances < math.inf or bool(self.quotas)

    @property
    def shared(self) -> bool:
        """Whether what one deployment does touches another."""
        return self.scarce or self.standby is not None


class Simulation:
    """One policy over some deployments, which share the hardware.

    Wishes for more than there is are granted as the product grants them; what is granted and has
    no room, because another's replica still drains, waits for it.
    """

    def __init__(
        self,
        fleets: Sequence[SimulatedDeployment],
        hardware: Hardware,
        decided: Callable[[Decided], None] | None = None,
    ) -> None:
        self._fleets = fleets
        self._hardware = hardware
        self._decided = decided
        self._pool = None if hardware.standby is None else SimulatedPool(hardware.standby)
        self._capacity = UNLIMITED._replace(gpus=hardware.instances)
        self._used = 0
        """Instances that replicas have, or that are empty and kept ready."""
        self._held: Counter[str] = Counter()
        """Replicas of each organization; what drains counts until it is gone."""
        self._lacking: dict[SimulatedDeployment, None] = {}
        """Those with a grant that there is no room for yet, who has waited longest first."""
        self._standby_s = 0.0
        self._events: list[tuple[float, int, int, SimulatedDeployment, object]] = []
        self._order = count()
        for fleet in fleets:
            if fleet.next_arrival_s < math.inf:
                self._at(fleet.next_arrival_s, ARRIVE, fleet)

    @property
    def standby_s(self) -> float:
        """What empty instances have cost, until the last replica stopped."""
        return self._standby_s

    def run(self) -> None:
        """Until the last request has ended and the last replica has stopped."""
        events = self._events
        if self._pool is not None and events:
            began_at, *_, fleet, _ = events[0]
            self._refill(self._pool, fleet, began_at)
        while events:
            now, kind, _, fleet, subject = heappop(events)
            if kind == DECIDE:
                if now == fleet.due_at:
                    self._decide(fleet, now)
            elif kind == ARRIVE:
                if begun := fleet.arrive(now):
                    self._at(now + begun.service_s, FINISH, fleet, begun)
                next_s = fleet.next_arrival_s
                if next_s < math.inf:
                    self._at(next_s, ARRIVE, fleet)
                self._changed(fleet, now)
            elif kind == FINISH:
                assert isinstance(subject, Begun)
                if begun := fleet.finish(subject, now):
                    self._at(now + begun.service_s, FINISH, fleet, begun)
                replica = subject.replica
                if replica.draining and not replica.running:
                    self._released(fleet, now)
                self._changed(fleet, now)
            elif kind == READY:
                assert isinstance(subject, SimulatedReplica)
                if subject in fleet.starting:
                    self._ready(fleet, subject, now)
            else:
                assert isinstance(subject, str)
                self._made(fleet, subject, now)

    def _ready(self, fleet: SimulatedDeployment, replica: SimulatedReplica, now: float) -> None:
        for begun in fleet.become_ready(replica, now):
            self._at(now + begun.service_s, FINISH, fleet, begun)
        self._due(fleet, fleet.scaler.record_cold_start(now - replica.started_at, now))

    def _changed(self, fleet: SimulatedDeployment, now: float) -> None:
        at = fleet.scaler.changed(fleet.total, fleet.live, now)
        if at < fleet.due_at:
            self._due(fleet, at)

    def _decide(self, fleet: SimulatedDeployment, now: float) -> None:
        fleet.due_at = math.inf
        step = fleet.scaler.decide(fleet.demand(), fleet.replicas(), now)
        desired, next_at = min(step.desired, MAX_REPLICAS), step.next_at
        if desired != fleet.desired:
            fleet.desired = desired
            self._grant(fleet, step, now)
        if fleet.live != fleet.granted:
            self._follow(fleet, now)
        if next_at is not None:
            self._due(fleet, max(next_at, now + EPSILON_S))

    def _follow(self, fleet: SimulatedDeployment, now: float) -> None:
        """Starts and stops replicas until there are as many as granted, or no instance is free."""
        while fleet.live > fleet.granted:
            replica = fleet.stop_one(now)
            if not replica.running:
                self._released(fleet, now)
        while fleet.live < fleet.granted:
            if not self._start(fleet, now):
                self._lacking.setdefault(fleet)
                return
        self._lacking.pop(fleet, None)

    def _grant(self, fleet: SimulatedDeployment, step: Decision, now: float) -> None:
        """Gives each as much of what it desires as there is, after one has changed its mind."""
        if not self._hardware.scarce:
            fleet.granted = fleet.desired
            self._tell(fleet, Allocation(fleet.desired), now, step)
            return
        each = Amounts(gpus=1, replicas=1)
        asks = [
            AllocationRequest(one, one.organization, each, one.desired, one.kept, one.live)
            for one in self._fleets
            if one.desired or one.granted
        ]
        grants = allocate(asks, self._hardware.quotas, self._capacity)
        grants.setdefault(fleet, Allocation(0))
        for one in sorted(grants, key=lambda one: grants[one].replicas - one.granted):
            before, one.granted = one.granted, grants[one].replicas
            if one is fleet:
                self._tell(one, grants[one], now, step)
            elif one.granted != before:
                self._tell(one, grants[one], now)
        others = [one for one in grants if one is not fleet and one.live != one.granted]
        for one in sorted(others, key=lambda one: one.granted - one.live):
            self._follow(one, now)

    def _tell(
        self,
        fleet: SimulatedDeployment,
        grant: Allocation,
        now: float,
        step: Decision | None = None,
    ) -> None:
        """`step` is the decision that led to it; None = another deployment's."""
        if self._decided is not None:
            why = filter(None, (step.why() if step else "", grant.reason))
            reason = "; ".join(why) or f"all {fleet.desired} granted"
            name, live = fleet.name, fleet.live
            self._decided(Decided(now, name, live, fleet.desired, grant.replicas, reason))

    def _start(self, fleet: SimulatedDeployment, now: float) -> bool:
        """A replica starts, on an instance that is ready, or else a new one, if there is one.

        No replica waits behind the start of a standby that has only just been ordered.
        """
        limit = self._hardware.quotas.get(fleet.organization, NO_QUOTA).limit
        if self._held[fleet.organization] >= min(limit.gpus, limit.replicas):
            return False
        pool = self._pool
        hit = pool is not None and pool.take(now)
        if not hit and self._used < self._hardware.instances:
            self._used += 1
        elif not hit and not (pool and pool.give_up(now, self._hardware.standby_start_s)):
            return False
        self._held[fleet.organization] += 1
        cold_start_s = self._hardware.standby_start_s if hit else self._hardware.cold_start_s
        replica = fleet.start(now, cold_start_s)
        self._at(replica.ready_at, READY, fleet, replica)
        fleet.standby_hits += hit
        if pool is not None:
            pool.started(fleet.organization, now, hit=hit)
            self._refill(pool, fleet, now)
        return True

    def _released(self, fleet: SimulatedDeployment, now: float) -> None:
        """A replica has left its instance: it is parked, or free."""
        self._held[fleet.organization] -= 1
        if self._pool is None:
            self._used -= 1
        else:
            self._pool.park(now)
            self._supply(now)  # before what nobody waits for is given back
            self._refill(self._pool, fleet, now)
            self._standby_s = self._pool.held_s
        self._supply(now)

    def _made(self, fleet: SimulatedDeployment, instance: str, now: float) -> None:
        """An instance that was ordered is ready."""
        if self._pool is not None and self._pool.made(instance, now):
            self._supply(now)
            self._refill(self._pool, fleet, now)

    def _supply(self, now: float) -> None:
        """What has waited longest gets what there is, if it is still granted."""
        for fleet in tuple(self._lacking):
            self._follow(fleet, now)

    def _refill(self, pool: SimulatedPool, fleet: SimulatedDeployment, now: float) -> None:
        """As many empty instances are ordered and given back as the planner says."""
        room = 0.0 if self._lacking else self._hardware.instances - self._used
        ordered, gone = pool.plan(now, room)
        self._used += len(ordered) - gone
        for instance in ordered:
            self._at(now + self._hardware.cold_start_s, MADE, fleet, instance)
        if gone:
            self._supply(now)

    def _due(self, fleet: SimulatedDeployment, at: float) -> None:
        """The fleet's next decision is at that time, if not before."""
        if at < fleet.due_at:
            fleet.due_at = at
            self._at(at, DECIDE, fleet)

    def _at(self, at: float, kind: int, fleet: SimulatedDeployment, subject: object = None) -> None:
        heappush(self._events, (at, kind, next(self._order), fleet, subject))
