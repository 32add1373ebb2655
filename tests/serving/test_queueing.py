from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hotplate.serving.gateway.queueing import OUT_S, Expiry, SlotQueue, Verdict
from hotplate.serving.gateway.routes import ReplicaRoute
from hotplate.serving.gateway.waiting import Ticket

TIMEOUT_S = 60.0
HOLD_S = 600.0


def queue_of(*replicas: ReplicaRoute, limit: int = 100, limit_bytes: int = 1000) -> SlotQueue[str]:
    queue: SlotQueue[str] = SlotQueue(limit, limit_bytes, now=0.0)
    queue.set_replicas(replicas, 0.0)
    return queue


def ticket_of(name: str, now: float = 0.0, *, size: int = 1, slot: bool = True) -> Ticket[str]:
    return Ticket(
        name, arrived_at=now, timeout_s=TIMEOUT_S, hold_s=HOLD_S, size_bytes=size, needs_slot=slot
    )


def names(tickets: Iterable[Ticket[str]]) -> list[str]:
    return [ticket.holder for ticket in tickets]


def replica_of(ticket: Ticket[str]) -> str:
    assert ticket.replica is not None
    return ticket.replica.id


def one(concurrency: int = 1, *, draining: bool = False, name: str = "a") -> ReplicaRoute:
    return ReplicaRoute(name, "host:1", concurrency, draining)


def test_requests_get_slots_first_come_first_served() -> None:
    queue = queue_of(one())
    first, second, third = map(ticket_of, ("1", "2", "3"))
    assert queue.submit(first, 0.0) is Verdict.GRANTED
    assert queue.submit(second, 0.0) is queue.submit(third, 0.0) is Verdict.QUEUED
    assert names(queue.release(first, 1.0)) == ["2"]
    assert names(queue.release(second, 2.0)) == ["3"]


def test_the_replica_with_most_free_slots_is_next_and_equals_take_turns() -> None:
    queue = queue_of(one(3, name="big"), one(1, name="left"), one(1, name="right"))
    tickets = [ticket_of(str(number)) for number in range(5)]
    for ticket in tickets:
        queue.submit(ticket, 0.0)
    assert [replica_of(t) for t in tickets] == ["big", "big", "left", "right", "big"]


def test_a_full_queue_refuses_by_count_and_by_bytes() -> None:
    queue = queue_of(limit=2, limit_bytes=10)
    assert queue.submit(ticket_of("1", size=4), 0.0) is Verdict.QUEUED
    assert queue.submit(ticket_of("2", size=7), 0.0) is Verdict.QUEUE_BYTES_FULL
    second = ticket_of("3", size=4)
    assert queue.submit(second, 0.0) is Verdict.QUEUED
    assert queue.submit(ticket_of("4", size=0), 0.0) is Verdict.QUEUE_FULL
    assert queue.grow(second, 3) is Verdict.QUEUE_BYTES_FULL
    assert queue.grow(second, 2) is Verdict.QUEUED
    queue.cancel(second)
    assert (queue.queued, queue.queued_bytes) == (1, 4)


def test_a_refused_caller_is_told_when_a_place_will_be_free() -> None:
    queue = queue_of(one(2))
    running = [ticket_of(str(number)) for number in range(2)]
    for ticket in running:
        queue.submit(ticket, 0.0)
    queue.release(running.pop(), 4.0)
    for number in range(11):
        queue.submit(ticket_of(f"waiting {number}"), 4.0)
    assert queue.queued == 10
    assert queue.retry_after_s() == pytest.approx(10 * 4.0 / 2)


def test_a_ticket_that_was_given_back_is_first_again_and_its_replica_is_out() -> None:
    queue = queue_of(one())
    first, second = ticket_of("1"), ticket_of("2")
    queue.submit(first, 0.0)
    queue.submit(second, 0.0)
    assert queue.give_back(first, 1.0) == []
    assert names(queue.waiting) == ["1", "2"]
    assert queue.next_event_at(1.0) == 1.0 + OUT_S
    assert names(queue.advance(1.0 + OUT_S).granted) == ["1"]


def test_a_new_table_lets_a_replica_back_in_at_once() -> None:
    queue = queue_of(one())
    ticket = ticket_of("1")
    queue.submit(ticket, 0.0)
    queue.give_back(ticket, 1.0)
    assert names(queue.set_replicas([one()], 1.1)) == ["1"]


def test_draining_and_gone_replicas_keep_their_slots_and_get_nothing() -> None:
    for table in ([one(2, draining=True)], []):
        queue = queue_of(one(2))
        running = ticket_of("1")
        queue.submit(running, 0.0)
        queue.set_replicas(table, 1.0)
        assert queue.submit(ticket_of("2"), 1.0) is Verdict.QUEUED
        assert queue.in_flight == 1
        assert queue.release(running, 2.0) == []
        assert queue.in_flight == 0


def test_a_replica_that_comes_back_still_has_its_slots_taken() -> None:
    queue = queue_of(one())
    running = ticket_of("1")
    queue.submit(running, 0.0)
    queue.set_replicas([], 1.0)
    assert queue.set_replicas([one()], 2.0) == []
    assert queue.submit(ticket_of("2"), 2.0) is Verdict.QUEUED
    assert names(queue.release(running, 3.0)) == ["2"]


def test_lower_concurrency_waits_until_enough_slots_are_back() -> None:
    queue = queue_of(one(3))
    running = [ticket_of(str(number)) for number in range(3)]
    for ticket in running:
        queue.submit(ticket, 0.0)
    queue.submit(ticket_of("next"), 0.0)
    queue.set_replicas([one(1)], 1.0)
    assert queue.release(running[0], 2.0) == []
    assert queue.release(running[1], 2.0) == []
    assert names(queue.release(running[2], 2.0)) == ["next"]


def test_the_clock_starts_when_a_replica_is_open() -> None:
    queue = queue_of()
    ticket = ticket_of("1")
    queue.submit(ticket, 0.0)
    assert queue.deadline(ticket) == HOLD_S
    queue.submit(ticket_of("2"), 0.0)
    queue.set_replicas([one()], 100.0)
    assert ticket.ends_at == 100.0 + TIMEOUT_S
    assert queue.next_event_at(100.0) == 100.0 + TIMEOUT_S


def test_expired_tickets_leave_the_line_but_keep_their_slots() -> None:
    queue = queue_of(one())
    running, waiting = ticket_of("1"), ticket_of("2")
    queue.submit(running, 0.0)
    queue.submit(waiting, 0.0)
    advance = queue.advance(TIMEOUT_S)
    assert list(advance.expired) == [(waiting, Expiry.QUEUED), (running, Expiry.RUNNING)]
    assert (queue.queued, queue.in_flight) == (0, 1)
    assert queue.advance(TIMEOUT_S + 1).expired == []
    assert queue.submit(ticket_of("3", TIMEOUT_S), TIMEOUT_S) is Verdict.QUEUED
    assert names(queue.release(running, TIMEOUT_S + 5)) == ["3"]


def test_without_a_replica_the_hold_limit_ends_the_wait() -> None:
    queue = queue_of()
    ticket = ticket_of("1")
    queue.submit(ticket, 0.0)
    assert queue.advance(HOLD_S - 1).expired == []
    assert list(queue.advance(HOLD_S).expired) == [(ticket, Expiry.NO_REPLICA)]


def test_a_ticket_without_a_slot_waits_for_a_replica_only() -> None:
    queue = queue_of()
    ready = ticket_of("ready", slot=False)
    assert queue.submit(ready, 0.0) is Verdict.QUEUED
    queue.submit(ticket_of("1"), 0.0)
    queue.submit(ticket_of("2"), 0.0)
    assert names(queue.set_replicas([one()], 1.0)) == ["ready", "1"]
    past = ticket_of("past the queue", slot=False)
    assert queue.submit(past, 1.0) is Verdict.GRANTED
    assert queue.in_flight == 1
    assert queue.release(past, 2.0) == []
    assert (queue.completed, queue.service_s) == (0, 0.0)


class Walk:
    """Random events on one queue, and what must hold after each of them."""

    def __init__(self) -> None:
        self.queue: SlotQueue[str] = SlotQueue(20, 60, now=0.0)
        self.now = 0.0
        self.open: dict[Ticket[str], None] = {}
        """Tickets that were accepted and not ended."""
        self.table: dict[str, ReplicaRoute] = {}

    @property
    def running(self) -> list[Ticket[str]]:
        return [ticket for ticket in self.open if ticket.replica is not None]

    @property
    def waiting(self) -> list[Ticket[str]]:
        return [ticket for ticket in self.open if ticket.replica is None]

    def submit(self, size: int, slot: bool) -> None:
        ticket = ticket_of("", self.now, size=size, slot=slot)
        if self.queue.submit(ticket, self.now) in (Verdict.GRANTED, Verdict.QUEUED):
            self.open[ticket] = None

    def cancel(self, index: int) -> None:
        if self.waiting:
            ticket = self.waiting[index % len(self.waiting)]
            self.queue.cancel(ticket)
            del self.open[ticket]

    def release(self, index: int) -> None:
        if self.running:
            ticket = self.running[index % len(self.running)]
            del self.open[ticket]
            self.queue.release(ticket, self.now)

    def give_back(self, index: int) -> None:
        if self.running:
            self.queue.give_back(self.running[index % len(self.running)], self.now)

    def set_replica(self, index: int, concurrency: int, draining: bool) -> None:
        name = f"r{index}"
        if concurrency:
            self.table[name] = ReplicaRoute(name, "h:1", concurrency, draining)
        else:
            self.table.pop(name, None)
        self.queue.set_replicas(self.table.values(), self.now)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for ticket, where in self.queue.advance(self.now).expired:
            if where is not Expiry.RUNNING:
                del self.open[ticket]

    def check(self) -> None:
        queue = self.queue
        slotted = [ticket for ticket in self.running if ticket.needs_slot]
        assert queue.in_flight == len(slotted), "a slot leaked"
        for replica in queue.replicas:
            mine = [ticket for ticket in slotted if ticket.replica is replica]
            assert replica.taken == len(mine)
        assert set(queue.waiting) == set(self.waiting), "a request was lost"
        assert queue.queued_bytes == sum(ticket.size_bytes for ticket in self.waiting)
        free = [r for r in queue.replicas if not r.draining and r.out_until <= self.now]
        if any(ticket.needs_slot for ticket in self.waiting):
            assert all(r.taken >= r.concurrency for r in free), "a request waits beside a free slot"
        if any(not ticket.needs_slot for ticket in self.waiting):
            assert not free
        for replica in queue.replicas:
            assert not replica.gone or replica.taken, "an empty replica was not forgotten"


def test_a_long_random_walk_loses_nothing_and_leaks_nothing() -> None:
    rng = random.Random(7)
    walk = Walk()
    before: dict[str, int] = {}
    for _ in range(4000):
        before = {r.id: r.taken for r in walk.queue.replicas}
        step = rng.randrange(12)
        if step < 5:
            walk.submit(rng.randrange(5), rng.random() < 0.8)
        elif step < 8:
            walk.release(rng.randrange(100))
        elif step == 8:
            walk.cancel(rng.randrange(100))
        elif step == 9:
            walk.give_back(rng.randrange(100))
        elif step == 10:
            walk.set_replica(rng.randrange(4), rng.randrange(4), rng.random() < 0.2)
        walk.advance(rng.choice((0.0, 0.1, 1.0, 30.0)) if step == 11 else 0.0)
        walk.check()
        for replica in walk.queue.replicas:
            grew = replica.taken > before.get(replica.id, 0)
            assert not grew or replica.taken <= replica.concurrency, "more than its slots"
    while walk.running:
        walk.release(0)
        walk.check()
    assert walk.queue.in_flight == 0


class QueueMachine(RuleBasedStateMachine):
    """The same events, chosen and shrunk by hypothesis."""

    def __init__(self) -> None:
        super().__init__()
        self.walk = Walk()

    @rule(size=st.integers(0, 30), slot=st.booleans())
    def submit(self, size: int, slot: bool) -> None:
        self.walk.submit(size, slot)

    @rule(index=st.integers(0, 50))
    def cancel(self, index: int) -> None:
        self.walk.cancel(index)

    @rule(index=st.integers(0, 50))
    def release(self, index: int) -> None:
        self.walk.release(index)

    @rule(index=st.integers(0, 50))
    def give_back(self, index: int) -> None:
        self.walk.give_back(index)

    @rule(index=st.integers(0, 3), concurrency=st.integers(0, 3), draining=st.booleans())
    def set_replica(self, index: int, concurrency: int, draining: bool) -> None:
        self.walk.set_replica(index, concurrency, draining)

    @rule(seconds=st.sampled_from((0.5, 1.0, 61.0, 601.0)))
    def advance(self, seconds: float) -> None:
        self.walk.advance(seconds)

    @invariant()
    def holds(self) -> None:
        # Time may have let a replica back in; the gateway's clock rings for that.
        self.walk.advance(0.0)
        self.walk.check()


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
