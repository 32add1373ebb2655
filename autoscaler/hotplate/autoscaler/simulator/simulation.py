"""Drives deployments through a trace in virtual time."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from itertools import count

from hotplate.autoscaler.simulator.fleet import Begun, Fleet, Replica
from hotplate.autoscaler.simulator.scaler import MAX_REPLICAS

EPSILON_S = 1e-6
"""A decision that asks to be made again at once is made this much later: time must go on."""


class Kind(IntEnum):
    """What happens; of what happens at the same time the lowest comes first."""

    FINISH = 0
    READY = 1
    ARRIVE = 2
    DECIDE = 3


@dataclass(frozen=True)
class Decided:
    """A decision that changed the number of replicas, or its reason."""

    at_s: float
    deployment: str
    live: int
    desired: int
    reason: str


class Simulation:
    """One policy over some deployments, which share `instances` GPUs (None = no limit).

    A wish that finds no free instance waits for one, first come first served.
    """

    def __init__(
        self,
        fleets: Iterable[Fleet],
        cold_start_s: float,
        instances: int | None = None,
        decided: Callable[[Decided], None] | None = None,
    ) -> None:
        self._cold_start_s = cold_start_s
        self._instances = math.inf if instances is None else instances
        self._decided = decided
        self._used = 0
        self._lacking: deque[Fleet] = deque()
        """Those with a wish that no instance was free for."""
        self._events: list[tuple[float, int, int, Fleet, object]] = []
        self._order = count()
        for fleet in fleets:
            if fleet.next_arrival_s < math.inf:
                self._at(fleet.next_arrival_s, Kind.ARRIVE, fleet)

    def run(self) -> None:
        """Until the last request has ended and the last replica has stopped."""
        events = self._events
        while events:
            now, kind, _, fleet, subject = heapq.heappop(events)
            if kind == Kind.ARRIVE:
                self._begin(fleet, fleet.arrive(now), now)
                if fleet.next_arrival_s < math.inf:
                    self._at(fleet.next_arrival_s, Kind.ARRIVE, fleet)
                self._changed(fleet, now)
            elif kind == Kind.FINISH:
                assert isinstance(subject, Begun)
                self._begin(fleet, fleet.finish(subject, now), now)
                replica = subject.replica
                if replica.draining and not replica.running:
                    self._released(now)
                self._changed(fleet, now)
            elif kind == Kind.READY:
                assert isinstance(subject, Replica)
                if subject in fleet.starting:
                    self._ready(fleet, subject, now)
            elif now == fleet.due_at:
                self._decide(fleet, now)

    def _ready(self, fleet: Fleet, replica: Replica, now: float) -> None:
        for begun in fleet.become_ready(replica, now):
            self._begin(fleet, begun, now)
        fleet.scaler.ready_after(now - replica.started_at)
        self._due(fleet, now)

    def _begin(self, fleet: Fleet, begun: Begun | None, now: float) -> None:
        if begun is not None:
            self._at(now + begun.service_s, Kind.FINISH, fleet, begun)

    def _changed(self, fleet: Fleet, now: float) -> None:
        self._due(fleet, fleet.scaler.changed(fleet.total, fleet.live, now))

    def _decide(self, fleet: Fleet, now: float) -> None:
        fleet.due_at = math.inf
        step = fleet.scaler.decide(fleet.view(), now)
        desired = min(step.desired, MAX_REPLICAS)
        if self._decided is not None and desired != fleet.desired:
            self._decided(Decided(now, fleet.name, fleet.live, desired, step.why()))
        fleet.desired = desired
        if fleet.live != desired:
            self._follow(fleet, now)
        self._due(fleet, max(step.next_at, now + EPSILON_S))

    def _follow(self, fleet: Fleet, now: float) -> None:
        """Starts and stops replicas until there are as many as desired, or no instance is free."""
        while fleet.live > fleet.desired:
            replica = fleet.stop_one(now)
            if not replica.running:
                self._released(now)
        while fleet.live < fleet.desired:
            if self._used >= self._instances:
                if fleet not in self._lacking:
                    self._lacking.append(fleet)
                return
            self._used += 1
            replica = fleet.start(now, self._cold_start_s)
            self._at(replica.ready_at, Kind.READY, fleet, replica)

    def _released(self, now: float) -> None:
        """An instance is free: who has waited longest for one has it, if it is still wished."""
        self._used -= 1
        while self._lacking and self._used < self._instances:
            self._follow(self._lacking.popleft(), now)

    def _due(self, fleet: Fleet, at: float) -> None:
        """The fleet's next decision is at that time, if not before."""
        if at < fleet.due_at:
            fleet.due_at = at
            self._at(at, Kind.DECIDE, fleet)

    def _at(self, at: float, kind: Kind, fleet: Fleet, subject: object = None) -> None:
        heapq.heappush(self._events, (at, kind, next(self._order), fleet, subject))
