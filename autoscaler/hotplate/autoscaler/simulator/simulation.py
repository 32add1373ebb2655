"""Drives deployments through a trace in virtual time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count, cycle

from hotplate.autoscaler.policy import Decision
from hotplate.autoscaler.sharing.allocation import (
    NO_QUOTA,
    Allocation,
    AllocationRequest,
    Quota,
    allocate,
)
from hotplate.autoscaler.sharing.amounts import UNLIMITED, Amounts
from hotplate.autoscaler.simulator.fleet import (
    SimulatedDeployment,
    SimulatedReplica,
    StartedRequest,
)
from hotplate.autoscaler.simulator.standby_pool import SimulatedPool
from hotplate.autoscaler.standby.planner import StandbyPolicy

EPSILON_S = 1e-6
"""A decision that is due again at once is made this much later, so that time goes on."""


FINISH, READY, MADE, ARRIVE, DECIDE = range(5)
"""The kinds of event; of events at the same time the lowest kind comes first."""


@dataclass(frozen=True)
class Decided:
    """A changed number of desired or granted replicas, because of this or another deployment.

    In the order in which they are published, `granted` never exceeds what there is.
    """

    at_s: float
    deployment: str
    live: int
    desired: int
    granted: int
    reason: str


@dataclass(frozen=True)
class Hardware:
    """What replicas run on, and how much of it each organization may have."""

    cold_start_s: float
    """The duration of every start, and of making an instance ready."""
    standby_start_s: float = 0.0
    """The duration of a start on a ready instance."""
    instances: float = math.inf
    """The number of GPUs."""
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    standby: StandbyPolicy | None = None
    """None = no instance is kept ready."""
    starts_s: Sequence[float] = ()
    """What starts take in turn, over and over, that are not on a ready instance; none = all take
    `cold_start_s`."""

    @property
    def scarce(self) -> bool:
        return self.instances < math.inf or bool(self.quotas)

    @property
    def shared(self) -> bool:
        """Whether what one deployment does affects another."""
        return self.scarce or self.standby is not None


class Simulation:
    """One policy over some deployments, which share the hardware.

    Requests for more than there is are granted as by the product. A granted replica waits while
    another deployment's replica still drains on its instance.
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
        """Instances that replicas use, or that are empty and kept ready."""
        self._running_replicas: Counter[str] = Counter()
        """The replicas of each organization, draining ones included."""
        self._lacking: dict[SimulatedDeployment, None] = {}
        """Deployments with granted replicas that find no free instance yet, the longest waiting
        first."""
        self._starts_s = cycle(hardware.starts_s or (hardware.cold_start_s,))
        self._standby_s = 0.0
        self._events: list[tuple[float, int, int, SimulatedDeployment, object]] = []
        self._order = count()
        for fleet in fleets:
            if fleet.next_arrival_s < math.inf:
                self._at(fleet.next_arrival_s, ARRIVE, fleet)
            if fleet.live:
                self._used += fleet.live
                self._running_replicas[fleet.organization] += fleet.live
                self._due(fleet, 0.0)
        if self._pool is not None and self._events:
            began_at, *_, first, _ = self._events[0]
            self._refill(self._pool, first, began_at)

    @property
    def standby_s(self) -> float:
        """The instance-seconds of empty instances until the last replica stopped."""
        return self._standby_s

    def run(self, until_s: float = math.inf) -> None:
        """Simulate up to then, or until the last request has ended and no replica stops by
        itself. A second call goes on."""
        events = self._events
        while events and events[0][0] <= until_s:
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
                assert isinstance(subject, StartedRequest)
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
        desired, next_at = min(step.desired, fleet.most), step.next_at
        if desired != fleet.desired:
            fleet.desired = desired
            self._grant(fleet, step, now)
        if fleet.live != fleet.granted:
            self._follow(fleet, now)
        if next_at is not None:
            self._due(fleet, max(next_at, now + EPSILON_S))

    def _follow(self, fleet: SimulatedDeployment, now: float) -> None:
        """Start and stop replicas until there are as many as granted, or no instance is free."""
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
        """Allocate replicas among all deployments after one desires another number."""
        if not self._hardware.scarce:
            fleet.granted = fleet.desired
            self._publish(fleet, Allocation(fleet.desired), now, step)
            return
        each = Amounts(gpus=1, replicas=1)
        requests = [
            AllocationRequest(one, one.organization, each, one.desired, one.kept, one.live)
            for one in self._fleets
            if one.desired or one.granted
        ]
        grants = allocate(requests, self._hardware.quotas, self._capacity)
        grants.setdefault(fleet, Allocation(0))
        for one in sorted(grants, key=lambda one: grants[one].replicas - one.granted):
            before, one.granted = one.granted, grants[one].replicas
            if one is fleet:
                self._publish(one, grants[one], now, step)
            elif one.granted != before:
                self._publish(one, grants[one], now)
        others = [one for one in grants if one is not fleet and one.live != one.granted]
        for one in sorted(others, key=lambda one: one.granted - one.live):
            self._follow(one, now)

    def _publish(
        self,
        fleet: SimulatedDeployment,
        grant: Allocation,
        now: float,
        step: Decision | None = None,
    ) -> None:
        """Publish a decision; `step` is the cause, None = that of another deployment."""
        if self._decided is not None:
            why = filter(None, (step.why() if step else "", grant.reason))
            reason = "; ".join(why) or f"all {fleet.desired} granted"
            name, live = fleet.name, fleet.live
            self._decided(Decided(now, name, live, fleet.desired, grant.replicas, reason))

    def _start(self, fleet: SimulatedDeployment, now: float) -> bool:
        """Start a replica on a ready instance, or else on a new one; False = there is none.

        A replica does not wait for a standby that has only just been ordered.
        """
        limit = self._hardware.quotas.get(fleet.organization, NO_QUOTA).limit
        if self._running_replicas[fleet.organization] >= min(limit.gpus, limit.replicas):
            return False
        pool = self._pool
        hit = pool is not None and pool.take(now)
        if not hit and self._used < self._hardware.instances:
            self._used += 1
        elif not hit and not (pool and pool.give_up(now, self._hardware.standby_start_s)):
            return False
        self._running_replicas[fleet.organization] += 1
        replica = fleet.start(now, self._hardware.standby_start_s if hit else next(self._starts_s))
        self._at(replica.ready_at, READY, fleet, replica)
        fleet.standby_hits += hit
        if pool is not None:
            pool.started(fleet.organization, now, hit=hit)
            self._refill(pool, fleet, now)
        return True

    def _released(self, fleet: SimulatedDeployment, now: float) -> None:
        """A replica has left its instance, which becomes a standby or is free."""
        self._running_replicas[fleet.organization] -= 1
        if self._pool is None:
            self._used -= 1
        else:
            self._pool.park(now)
            self._supply(now)  # before unneeded instances are given back
            self._refill(self._pool, fleet, now)
            self._standby_s = self._pool.empty_s
        self._supply(now)

    def _made(self, fleet: SimulatedDeployment, instance: str, now: float) -> None:
        """An ordered instance is ready."""
        if self._pool is not None and self._pool.made(instance, now):
            self._supply(now)
            self._refill(self._pool, fleet, now)

    def _supply(self, now: float) -> None:
        """Start replicas for deployments that wait for an instance, the longest waiting first."""
        for fleet in tuple(self._lacking):
            self._follow(fleet, now)

    def _refill(self, pool: SimulatedPool, fleet: SimulatedDeployment, now: float) -> None:
        """Order and give back empty instances as the planner says."""
        room = 0.0 if self._lacking else self._hardware.instances - self._used
        ordered, gone = pool.plan(now, room)
        self._used += len(ordered) - gone
        for instance in ordered:
            self._at(now + self._hardware.cold_start_s, MADE, fleet, instance)
        if gone:
            self._supply(now)

    def _due(self, fleet: SimulatedDeployment, at: float) -> None:
        """The deployment's next decision is due at that time, if not before."""
        if at < fleet.due_at:
            fleet.due_at = at
            self._at(at, DECIDE, fleet)

    def _at(self, at: float, kind: int, fleet: SimulatedDeployment, subject: object = None) -> None:
        heappush(self._events, (at, kind, next(self._order), fleet, subject))
