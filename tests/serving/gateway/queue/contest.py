"""Closed-loop clients at one queue, in virtual time: what each organization gets out of it.

The replica does not notice who leaves, and slows nobody down. A client asks again `pause_s` after
its answer, its refusal or its own patience.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from statistics import mean

from hotplate.serving.gateway.protocol.routes import ReplicaRoute
from hotplate.serving.gateway.queue.changes import Changes, End
from hotplate.serving.gateway.queue.discipline import SlotQueue
from hotplate.serving.gateway.queue.ticket import ENDED, WAITING, Ticket

HOLD_S = 600.0


@dataclass(frozen=True)
class Crowd:
    """Clients of one organization."""

    organization: str
    clients: int
    service_s: Callable[[random.Random], float] = lambda rng: 0.05
    priority: int = 3
    patience_s: float = float("inf")
    """After this a client leaves."""
    pause_s: float = 0.001


@dataclass
class Got:
    """What a crowd got."""

    good: int = 0
    """Answers that found their client there."""
    wasted: int = 0
    """Answers that did not."""
    refused: int = 0
    waits_s: list[float] = field(default_factory=list)
    """Until the slot, of those that got one."""
    slot_s: float = 0.0

    @property
    def wait_s(self) -> float:
        return mean(self.waits_s)


@dataclass(eq=False)
class Call:
    """One request of a client."""

    crowd: Crowd
    got: Got
    left: bool = False


class Contest:
    """Runs crowds against a queue with `slots` of one replica each of `concurrency`."""

    def __init__(
        self,
        crowds: Sequence[Crowd],
        *,
        slots: int = 2,
        timeout_s: float = 60.0,
        weights: dict[str, float] | None = None,
        limit: int = 1000,
        seed: int = 1,
    ) -> None:
        self.now = 0.0
        self.most_running = 0
        self.rng = random.Random(seed)
        self.timeout_s = timeout_s
        self.queue: SlotQueue[Call] = SlotQueue(limit, 1 << 30, now=0.0)
        self.queue.set_limits(limit, 1 << 30, weights or {})
        self.queue.set_replicas([ReplicaRoute("r", "h:1", slots)], 0.0)
        self.crowds = [(crowd, Got()) for crowd in crowds]
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        for crowd, got in self.crowds:
            for number in range(crowd.clients):
                self._at(number * 1e-4, lambda crowd=crowd, got=got: self._ask(crowd, got))  # type: ignore[misc]

    def run(self, seconds: float, *, warm_up_s: float = 0.0) -> list[Got]:
        """What each crowd got between the warm-up and the end."""
        self._until(warm_up_s)
        for index, (crowd, got) in enumerate(self.crowds):
            fresh = Got()
            got.__dict__, self.crowds[index] = fresh.__dict__, (crowd, got)
        self._until(warm_up_s + seconds)
        return [got for _, got in self.crowds]

    # Inside

    def _at(self, at: float, what: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._events, (at, self._count, what))

    def _until(self, end: float) -> None:
        while self._events and self._events[0][0] <= end:
            self.now, _, what = heappop(self._events)
            what()
            due = self.queue.next_event_at()
            if due is not None and due <= self.now:
                self._follow(self.queue.advance(self.now))

    def _ask(self, crowd: Crowd, got: Got) -> None:
        call = Call(crowd, got)
        ticket = Ticket(
            call,
            arrived_at=self.now,
            timeout_s=self.timeout_s,
            hold_s=HOLD_S,
            organization=crowd.organization,
            priority=crowd.priority,
        )
        self._follow(self.queue.submit(ticket, self.now))
        if ticket.state != ENDED and crowd.patience_s < float("inf"):
            self._at(self.now + crowd.patience_s, lambda: self._leave(ticket))
        self._at(ticket.ends_at, lambda: self._follow(self.queue.advance(self.now)))

    def _leave(self, ticket: Ticket[Call]) -> None:
        call = ticket.waiter
        if call.left:
            return
        if ticket.state == WAITING:
            self.queue.waiting.cancel(ticket)
        self._part(call)

    def _part(self, call: Call) -> None:
        """The client asks again."""
        call.left = True
        self._at(self.now + call.crowd.pause_s, lambda: self._ask(call.crowd, call.got))

    def _follow(self, changes: Changes[Call]) -> None:
        for ticket in changes.granted:
            call = ticket.waiter
            service_s = call.crowd.service_s(self.rng)
            call.got.waits_s.append(self.now - ticket.arrived_at)
            call.got.slot_s += service_s
            self._at(self.now + service_s, lambda t=ticket: self._answer(t))  # type: ignore[misc]
        self.most_running = max(self.most_running, self.queue.in_flight)
        for ticket, end in changes.ended:
            ticket.waiter.got.refused += 1
            if end is not End.RUNNING or not ticket.waiter.left:
                self._part(ticket.waiter)

    def _answer(self, ticket: Ticket[Call]) -> None:
        call = ticket.waiter
        if call.left:
            call.got.wasted += 1
        else:
            call.got.good += 1
            self._part(call)
        self._follow(self.queue.release(ticket, self.now))
