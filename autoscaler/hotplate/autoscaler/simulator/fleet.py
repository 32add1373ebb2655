"""One deployment in virtual time: its queue, its replicas, and what they cost."""

from __future__ import annotations

import math
from array import array
from collections import deque
from typing import NamedTuple

from hotplate.autoscaler.policy import Demand, Replicas
from hotplate.autoscaler.simulator.arrivals import RequestTrace
from hotplate.autoscaler.simulator.scaler import Scaler

MEAN_WEIGHT = 0.1
"""Weight of the newest request in the mean service time, once there are ten; the gateway's."""


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


class Begun(NamedTuple):
    """A request that has its slot now."""

    replica: SimulatedReplica
    service_s: float


class SimulatedDeployment:
    """A FIFO queue before replicas of `concurrency` slots; the oldest with a free slot is next.

    The simulation tells it what happens, and it answers with the requests that begin.
    """

    def __init__(self, name: str, arrivals: RequestTrace, concurrency: int, scaler: Scaler) -> None:
        self.name = name
        self.arrivals = arrivals
        self.scaler = scaler
        self.due_at = math.inf
        """When the next decision is due."""
        self.desired = 0
        self.granted = 0
        """How many of the desired it may have."""
        self.live = 0
        """Replicas that start or are ready."""
        self.total = 0
        """Requests in flight and queued."""
        self.ready: list[SimulatedReplica] = []
        """Those that take requests, the oldest first."""
        self.starting: list[SimulatedReplica] = []
        self.running = 0
        self.waits_s = array("d")
        self.cold_hits = 0
        """Requests that found no ready replica when they came."""
        self.starts = self.standby_hits = 0
        """Of all starts, those on an instance that was kept ready."""
        self.busy_s = self.idle_s = self.starting_s = 0.0
        """What replicas cost, in each of their states; draining with work is busy."""
        self.changes: list[tuple[float, int]] = []
        """When a replica's start began (+1), and when it had stopped (-1)."""
        self.queued_area = self.running_area = 0.0
        """Queued and running requests, integrated over time."""
        self._concurrency = concurrency
        self._queue: deque[int] = deque()
        self._arrived = 0
        self.next_arrival_s = arrivals.arrival_s[0] if arrivals.arrival_s else math.inf
        """When the next request comes; inf = there is none."""
        self._replicas: Replicas | None = Replicas()
        self._free = 0
        self._ended = 0
        self._service_s = 0.0
        self.ended_at = 0.0
        """When a request ended last."""
        self._at = 0.0

    @property
    def organization(self) -> str:
        return self.arrivals.organization

    @property
    def kept(self) -> int:
        """Of those desired, how many have nothing to do."""
        return max(0, self.desired - -(-self.total // self._concurrency))

    def demand(self) -> Demand:
        return Demand(self.running, len(self._queue), self._service_s)

    def replicas(self) -> Replicas:
        replicas = self._replicas
        if replicas is None:
            starting_at = tuple([one.started_at for one in self.starting])
            replicas = self._replicas = Replicas(len(self.ready), starting_at)
        return replicas

    def arrive(self, now: float) -> Begun | None:
        """The next request is here: it begins, or waits."""
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

    def finish(self, ended: Begun, now: float) -> Begun | None:
        """A request has ended: the one that waits longest has its slot, unless it drains."""
        self._pass(now)
        self._learn(ended.service_s)
        self.ended_at = now
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
            self._stopped(replica, now)
        return None

    def start(self, now: float, cold_start_s: float) -> SimulatedReplica:
        replica = SimulatedReplica(now, now + cold_start_s)
        self.starts += 1
        self.live += 1
        self._replicas = None
        self.changes.append((now, 1))
        self.starting.append(replica)
        return replica

    def become_ready(self, replica: SimulatedReplica, now: float) -> list[Begun]:
        """A cold start has ended; of those that wait begin as many as fit."""
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
        """The youngest that starts; else the one with the least to do, the youngest of them.

        What it works on it ends first.
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
        if not replica.running:
            self._stopped(replica, now)
        return replica

    def _oldest_free(self) -> SimulatedReplica:
        for replica in self.ready:
            if replica.running < self._concurrency:
                return replica
        raise AssertionError(f"{self.name}: {self._free} slots are free, and no replica has one")

    def _begin(self, request: int, replica: SimulatedReplica, now: float) -> Begun:
        self.waits_s.append(now - self.arrivals.arrival_s[request])
        if not replica.running:
            replica.busy_since = now
        replica.running += 1
        self.running += 1
        return Begun(replica, self.arrivals.service_s[request])

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
        """Time goes by until now."""
        past_s = now - self._at
        self._at = now
        self.queued_area += len(self._queue) * past_s
        self.running_area += self.running * past_s
