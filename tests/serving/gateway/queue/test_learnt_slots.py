"""A queue whose replicas' slots are learnt."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field, replace

from hotplate.serving.gateway.protocol.routes import FIRST_SLOTS, ReplicaRoute
from hotplate.serving.gateway.queue.discipline import SlotQueue
from hotplate.serving.gateway.queue.replica_slots import Replica
from hotplate.serving.gateway.queue.ticket import RUNNING, Ticket

ROUTE = ReplicaRoute("a", "h:1", FIRST_SLOTS, learns=True)


def queue_of(*replicas: ReplicaRoute) -> SlotQueue[str]:
    queue: SlotQueue[str] = SlotQueue(10_000, 1 << 30, now=0.0)
    queue.set_replicas(replicas, 0.0)
    return queue


def the_replica(queue: SlotQueue[str], name: str = "a") -> Replica:
    return next(replica for replica in queue.replicas if replica.id == name)


def learnt(queue: SlotQueue[str], name: str = "a") -> int:
    adaptive = the_replica(queue, name).adaptive
    assert adaptive is not None
    return adaptive.learnt


@dataclass
class Serving:
    """Clients of a queue whose replicas run one request after the other, 0.1 s each."""

    queue: SlotQueue[str]
    now: float = 0.0
    most: dict[str, int] = field(default_factory=dict)
    _free_at: dict[str, float] = field(default_factory=dict)
    _ends: list[tuple[float, int, Ticket[str]]] = field(default_factory=list)
    _count: int = 0

    def come(self, clients: int) -> None:
        for _ in range(clients):
            ticket = Ticket("x", self.now, math.inf, math.inf)
            self._go(*self.queue.submit(ticket, self.now).granted)

    def follow(self, *table: ReplicaRoute) -> None:
        self._go(*self.queue.set_replicas(table, self.now).granted)

    def answer(self, requests: int, *, again: bool = True, is_sample: bool = True) -> None:
        for _ in range(requests):
            self.now, _, ticket = heapq.heappop(self._ends)
            ticket.is_sample = is_sample
            self._go(*self.queue.release(ticket, self.now).granted)
            if again:
                self.come(1)

    def _go(self, *granted: Ticket[str]) -> None:
        for ticket in granted:
            assert ticket.state == RUNNING and ticket.replica is not None
            name = ticket.replica.id
            assert ticket.replica.taken <= ticket.replica.concurrency
            self._free_at[name] = max(self.now, self._free_at.get(name, 0.0)) + 0.1
            self._count += 1
            heapq.heappush(self._ends, (self._free_at[name], self._count, ticket))


def test_a_replica_that_runs_one_at_a_time_is_found_out() -> None:
    queue = queue_of(ROUTE)
    serving = Serving(queue)
    serving.come(100)
    serving.answer(1000)
    assert learnt(queue) == 1
    assert queue.slots <= 2


def test_each_replica_learns_for_itself_and_a_new_one_begins_where_the_table_says() -> None:
    queue = queue_of(ROUTE)
    serving = Serving(queue)
    serving.come(100)
    serving.answer(1000)
    queue.set_replicas([replace(ROUTE, concurrency=1), ReplicaRoute("b", "h:2", 5, learns=True)], 0)
    assert (learnt(queue, "a"), learnt(queue, "b")) == (1, 5)
    queue.set_replicas([replace(ROUTE, concurrency=77)], 0)
    assert learnt(queue, "a") == 1, "it goes on with what it knows"


def test_failures_teach_nothing() -> None:
    queue = queue_of(ROUTE)
    serving = Serving(queue)
    serving.come(100)
    serving.answer(1000, is_sample=False)
    assert learnt(queue) == FIRST_SLOTS


def test_a_number_that_is_set_meanwhile_is_in_force_at_once_and_freed_again() -> None:
    queue = queue_of(ROUTE)
    serving = Serving(queue)
    serving.come(100)
    serving.answer(50)
    serving.follow(replace(ROUTE, concurrency=7, learns=False))
    assert the_replica(queue).concurrency == 7
    serving.answer(200)
    assert the_replica(queue).taken == 7
    serving.follow(ROUTE)
    serving.answer(1000)
    assert learnt(queue) == 1


def test_nothing_is_lost_as_slots_come_and_go() -> None:
    queue = queue_of(ROUTE, ReplicaRoute("b", "h:2", FIRST_SLOTS, learns=True))
    serving = Serving(queue)
    serving.come(200)
    serving.answer(3000)
    serving.answer(200, again=False)
    assert queue.idle
    assert queue.in_flight == 0
    assert [replica.taken for replica in queue.replicas] == [0, 0]
    assert queue.slots == learnt(queue, "a") + learnt(queue, "b")


def test_streams_that_go_on_keep_nobody_out_for_long() -> None:
    queue = queue_of(replace(ROUTE, concurrency=2))
    streams = [Ticket("s", 0.0, math.inf, math.inf) for _ in range(3)]
    for stream in streams:
        queue.submit(stream, 0.0)
    for stream in streams[:2]:
        queue.response_began(stream, 0.1)
    assert streams[2].state != RUNNING
    due = queue.stalls_at(0.1)
    assert 0.1 < due <= 2.0
    assert queue.advance(due).granted == [streams[2]]
    assert learnt(queue) == 3


def test_requests_that_have_not_begun_to_be_answered_keep_others_out() -> None:
    queue = queue_of(replace(ROUTE, concurrency=2))
    for _ in range(3):
        queue.submit(Ticket("r", 0.0, math.inf, math.inf), 0.0)
    for at in range(1, 100):
        assert not queue.advance(float(at)).granted
    assert learnt(queue) == 2


def test_bodies_that_come_slowly_teach_nothing() -> None:
    queue = queue_of(ROUTE)
    for number in range(500):
        ticket = Ticket("r", float(number), math.inf, math.inf)
        queue.submit(ticket, float(number))
        ticket.body_received_at = number + 0.5
        queue.release(ticket, number + 0.6)
    assert learnt(queue) == FIRST_SLOTS
