"""One service in virtual time: requests come, replicas start, a real `Decider` decides.

The gateway is a FIFO that gives each free slot of a ready replica the next request; a replica is
ready after a constant cold start; what is stopped finishes its requests. Every event is followed by
`observe` and `decide`, and `Decision.next_at` is the only other reason to decide.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

from hotplate.autoscaler.decider import Decider
from hotplate.autoscaler.policy import Decision, Demand, Policy, Replicas

EWMA = 0.1
"""Weight of the newest request in the gateway's mean service time."""


@dataclass(eq=False)
class Replica:
    started_at: float
    ready: bool = False
    in_flight: int = 0


@dataclass
class Story:
    policy: Policy
    cold_start_s: float
    service_s: float = 0.0
    """What the gateway knows of service times; 0 = nothing yet."""
    memory: dict[str, Any] | None = None
    """What the decider knows already."""
    decider: Decider = field(init=False)
    now: float = 0.0
    live: list[Replica] = field(default_factory=list)
    queue: deque[tuple[float, float]] = field(default_factory=deque)
    decisions: list[tuple[float, Decision]] = field(default_factory=list)
    """(time, decision), one per change of `desired`."""
    waits_s: list[float] = field(default_factory=list)
    starts: int = 0
    decided: int = 0
    replica_s: float = 0.0

    def __post_init__(self) -> None:
        self.decider = Decider(self.policy, now=0.0, memory=self.memory)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._draining: list[Replica] = []
        self._next_at = math.inf

    def play(self, requests: Iterable[tuple[float, float]], until: float) -> Story:
        """`requests`: (arrival, service time), seconds."""
        for request in requests:
            self._at(request[0], partial(self.queue.append, request))
        self._step()
        while (now := min(self._next_event_at, self._next_at)) <= until:
            self._advance(now)
            if self._next_event_at <= now:
                heapq.heappop(self._events)[2]()
            self._step()
        self._advance(until)
        return self

    @property
    def _next_event_at(self) -> float:
        return self._events[0][0] if self._events else math.inf

    @property
    def desired(self) -> list[int]:
        return [decision.desired for _, decision in self.decisions]

    def turns(self, begin: float, end: float) -> int:
        """How often the count changed its direction between `begin` and `end`."""
        counts = [d.desired for at, d in self.decisions if begin <= at < end]
        ups = [b > a for a, b in pairwise(counts)]
        return sum(a != b for a, b in pairwise(ups))

    def _at(self, when: float, what: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (when, self._order, what))

    def _advance(self, now: float) -> None:
        self.replica_s += (now - self.now) * (len(self.live) + len(self._draining))
        self.now = now

    def _step(self) -> None:
        self._dispatch()
        in_flight = sum(r.in_flight for r in self.live)
        self.decider.observe(Demand(in_flight, len(self.queue), self.service_s), self.now)
        starting = tuple(r.started_at for r in self.live if not r.ready)
        replicas = Replicas(len(self.live) - len(starting), starting)
        decision = self.decider.decide(replicas, self.now)
        self.decided += 1
        if not self.decisions or self.decisions[-1][1].desired != decision.desired:
            self.decisions.append((self.now, decision))
        self._scale(decision.desired)
        self._next_at = math.inf if decision.next_at is None else decision.next_at
        assert self._next_at > self.now

    def _dispatch(self) -> None:
        for replica in self.live:
            while replica.ready and replica.in_flight < self.policy.concurrency and self.queue:
                arrival, service_s = self.queue.popleft()
                self.waits_s.append(self.now - arrival)
                replica.in_flight += 1
                self._at(self.now + service_s, partial(self._end, replica, service_s))

    def _end(self, replica: Replica, service_s: float) -> None:
        replica.in_flight -= 1
        last = self.service_s or service_s
        self.service_s = last + EWMA * (service_s - last)
        if replica in self._draining and not replica.in_flight:
            self._draining.remove(replica)

    def _scale(self, desired: int) -> None:
        while len(self.live) < desired:
            replica = Replica(self.now)
            self.live.append(replica)
            self.starts += 1
            self._at(self.now + self.cold_start_s, partial(self._ready, replica))
        while len(self.live) > desired:
            replica = min(reversed(self.live), key=lambda r: (r.ready, r.in_flight))
            self.live.remove(replica)
            if replica.in_flight:
                self._draining.append(replica)

    def _ready(self, replica: Replica) -> None:
        if replica in self.live:
            replica.ready = True
            self.decider.record_cold_start(self.cold_start_s)
