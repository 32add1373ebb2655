"""One deployment in virtual time: its queue, its replicas, and what they cost."""

from __future__ import annotations

import math
from array import array
from collections import deque
from typing import NamedTuple

from hotplate.autoscaler.policy import Demand, Replicas
from hotplate.autoscaler.simulator.arrivals import RequestTrace
from hotplate.autoscaler.simulator.scaler import MAX_REPLICAS, Scaler
from hotplate.autoscaler.simulator.template import SimulatedTemplate

MEAN_WEIGHT = 0.1
"""The weight of the newest request in the mean service time, from the tenth on; the gateway's."""


class SimulatedReplica:
    """A replica from the start of its cold start until it stops."""

    __slots__ = ("busy_s", "busy_since", "draining", "ready_at", "running", "started_at")

    def __init__(self, started_at: float, ready_at: float) -> None:
        self.started_at = started_at
        self.ready_at = ready_at
        self.draining = False
        self.running = 0
        self.busy_since = 0.0
        self.busy_s = 0.0


class StartedRequest(NamedTuple):
    """A request that has just got a slot."""

    replica: SimulatedReplica
    service_s: float
    request: int


class Spent(NamedTuple):
    """Replica-seconds by what the replicas did; one that drains with requests is busy."""

    busy: float
    idle: float
    starting: float


class SimulatedDeployment:
    """A FIFO queue before replicas of `concurrency` slots; the oldest with a free slot is next.

    The simulation calls a method for each event, which returns the requests that begin.
    """

    def __init__(
        self,
        name: str,
        arrivals: RequestTrace,
        concurrency: int,
        scaler: Scaler,
        most: int = MAX_REPLICAS,
        template: SimulatedTemplate | None = None,
    ) -> None:
        """`template` = None: no start is forked."""
        self.name = name
        self.most = most
        """It has at most so many replicas, whatever is desired."""
        self.arrivals = arrivals
        self.scaler = scaler
        self.due_at = math.inf
        """When the next decision is due."""
        self.desired = 0
        self.granted = 0
        """How many of the desired replicas it may have."""
        self.live = 0
        """How many replicas start or are ready."""
        self.total = 0
        """Requests in flight and queued."""
        self.ready: list[SimulatedReplica] = []
        """Replicas that take requests, the oldest first."""
        self.starting: list[SimulatedReplica] = []
        self.draining: list[SimulatedReplica] = []
        """Replicas that end the requests that they have."""
        self.running = 0
        self.waits_s = array("d")
        self.cold_hits = 0
        """Requests that found no ready replica when they came."""
        self.starts = self.standby_hits = 0
        """All starts, and those on an instance that was kept ready."""
        self.busy_s = self.idle_s = self.starting_s = 0.0
        """Replica-seconds in each state; a draining replica with requests is busy."""
        self.changes: list[tuple[float, int]] = []
        """When a replica's start began (+1) and when it stopped (-1)."""
        self.queued_area = self.running_area = 0.0
        """Queued and running requests, integrated over time."""
        self._concurrency = concurrency
        self._template = template
        self._queue: deque[int] = deque()
        self._arrived = 0
        self.next_arrival_s = arrivals.arrival_s[0] if arrivals.arrival_s else math.inf
        """The time of the next request; inf = there is none."""
        self._replicas: Replicas | None = Replicas()
        self._free = 0
        self._ended = 0
        self._begun_at: dict[int, float] = {}
        """When each running request began, the oldest first."""
        self._service_s = 0.0
        self.ended_at = 0.0
        """When the last request ended."""
        self._at = 0.0

    @property
    def organization(self) -> str:
        return self.arrivals.organization

    @property
    def kept(self) -> int:
        """How many of the desired replicas have no work."""
        return max(0, self.desired - -(-self.total // self._concurrency))

    def demand(self) -> Demand:
        oldest_at = next(iter(self._begun_at.values()), None)
        return Demand(self.running, len(self._queue), self._service_s, oldest_at, self._ended)

    def replicas(self) -> Replicas:
        replicas = self._replicas
        if replicas is None:
            starting_at = tuple([one.started_at for one in self.starting])
            replicas = self._replicas = Replicas(len(self.ready), starting_at)
        return replicas

    def begin_with(self, ready: int) -> None:
        """So many replicas are ready at second 0, before any request."""
        for _ in range(ready):
            self.ready.append(SimulatedReplica(0.0, 0.0))
            self.changes.append((0.0, 1))
        self.live = self.desired = self.granted = ready
        self._free = ready * self._concurrency
        self._replicas = None

    def spent(self, now: float) -> Spent:
        """What all replicas have cost until `now`, at which the simulation stands."""
        busy, idle, starting = self.busy_s, self.idle_s, self.starting_s
        for replica in (*self.ready, *self.draining):
            working = replica.busy_s + (now - replica.busy_since if replica.running else 0.0)
            busy += working
            idle += now - replica.ready_at - working
        return Spent(busy, idle, starting + sum(now - one.started_at for one in self.starting))

    def arrive(self, now: float) -> StartedRequest | None:
        """The next request comes, and begins or waits."""
        self._pass(now)
        request, times = self._arrived, self.arrivals.arrival_s
        self._arrived = following = request + 1
        self.next_arrival_s = times[following] if following < len(times) else math.inf
        self.total += 1
        if not self.ready:
            self.cold_hits += 1
        if not self._free:
            self._queue.append(request)
            return None
        self._free -= 1
        return self._begin(request, self._oldest_free(), now)

    def finish(self, ended: StartedRequest, now: float) -> StartedRequest | None:
        """A request has ended; unless its replica drains, the longest waiting one gets the slot."""
        self._pass(now)
        self._learn(ended.service_s)
        self.ended_at = now
        del self._begun_at[ended.request]
        replica = ended.replica
        replica.running -= 1
        self.running -= 1
        self.total -= 1
        if not replica.running:
            replica.busy_s += now - replica.busy_since
        if not replica.draining:
            if self._queue:
                return self._begin(self._queue.popleft(), replica, now)
            self._free += 1
        elif not replica.running:
            self.draining.remove(replica)
            self._stopped(replica, now)
        return None

    def start(self, now: float, cold_start_s: float) -> SimulatedReplica:
        """A replica starts, which takes `cold_start_s` unless a template forks it."""
        template = self._template
        start_s = cold_start_s if template is None else template.start_s(cold_start_s, now)
        replica = SimulatedReplica(now, now + start_s)
        self.starts += 1
        self.live += 1
        self._replicas = None
        self.changes.append((now, 1))
        self.starting.append(replica)
        return replica

    def become_ready(self, replica: SimulatedReplica, now: float) -> list[StartedRequest]:
        """A cold start has ended; as many waiting requests begin as there are slots."""
        self._pass(now)
        self._replicas = None
        self.starting.remove(replica)
        self.ready.append(replica)
        self.starting_s += now - replica.started_at
        begun = []
        while self._queue and replica.running < self._concurrency:
            begun.append(self._begin(self._queue.popleft(), replica, now))
        self._free += self._concurrency - replica.running
        return begun

    def stop_one(self, now: float) -> SimulatedReplica:
        """Stop the youngest starting replica, or else the youngest of those with the fewest
        requests, which finishes them first.
        """
        self.live -= 1
        self._replicas = None
        if self.starting:
            replica = self.starting.pop()
            self.starting_s += now - replica.started_at
            self.changes.append((now, -1))
            return replica
        replica = min(reversed(self.ready), key=lambda one: one.running)
        self.ready.remove(replica)
        self._free -= self._concurrency - replica.running
        replica.draining = True
        if replica.running:
            self.draining.append(replica)
        else:
            self._stopped(replica, now)
        return replica

    def _oldest_free(self) -> SimulatedReplica:
        for replica in self.ready:
            if replica.running < self._concurrency:
                return replica
        raise AssertionError(f"{self.name}: {self._free} slots are free, and no replica has one")

    def _begin(self, request: int, replica: SimulatedReplica, now: float) -> StartedRequest:
        self.waits_s.append(now - self.arrivals.arrival_s[request])
        if not replica.running:
            replica.busy_since = now
        replica.running += 1
        self.running += 1
        self._begun_at[request] = now
        return StartedRequest(replica, self.arrivals.service_s[request], request)

    def _learn(self, service_s: float) -> None:
        self._ended += 1
        weight = 1 / self._ended
        if weight < MEAN_WEIGHT:
            weight = MEAN_WEIGHT
        self._service_s += weight * (service_s - self._service_s)

    def _stopped(self, replica: SimulatedReplica, now: float) -> None:
        self.changes.append((now, -1))
        self.busy_s += replica.busy_s
        self.idle_s += now - replica.ready_at - replica.busy_s

    def _pass(self, now: float) -> None:
        """Time passes until `now`."""
        past_s = now - self._at
        self._at = now
        self.queued_area += len(self._queue) * past_s
        self.running_area += self.running * past_s
