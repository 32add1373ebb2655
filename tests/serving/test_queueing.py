from __future__ import annotations

from collections.abc import Iterable

import pytest

from hotplate.serving.gateway.queueing import OUT_S, End, SlotQueue
from hotplate.serving.gateway.routes import ReplicaRoute
from hotplate.serving.gateway.waiting import RUNNING, WAITING, Ticket

TIMEOUT_S = 60.0
HOLD_S = 600.0


def queue_of(*replicas: ReplicaRoute, limit: int = 100, limit_bytes: int = 1000) -> SlotQueue[str]:
    queue: SlotQueue[str] = SlotQueue(limit, limit_bytes, now=0.0)
    queue.set_replicas(replicas, 0.0)
    return queue


def ticket_of(
    name: str,
    now: float = 0.0,
    *,
    size: int = 1,
    slot: bool = True,
    timeout_s: float = TIMEOUT_S,
    organization: str = "",
    priority: int = 3,
) -> Ticket[str]:
    return Ticket(
        name,
        arrived_at=now,
        timeout_s=timeout_s,
        hold_s=HOLD_S,
        size_bytes=size,
        needs_slot=slot,
        organization=organization,
        priority=priority,
    )


def outcome(queue: SlotQueue[str], ticket: Ticket[str], now: float) -> int | End:
    """Where the submitted ticket is, or why it is not."""
    refused = [end for other, end in queue.submit(ticket, now).ended if other is ticket]
    return refused[0] if refused else ticket.place


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
    assert outcome(queue, first, 0.0) == RUNNING
    assert outcome(queue, second, 0.0) == outcome(queue, third, 0.0) == WAITING
    assert names(queue.release(first, 1.0).granted) == ["2"]
    assert names(queue.release(second, 2.0).granted) == ["3"]


def test_the_replica_with_most_free_slots_is_next_and_equals_take_turns() -> None:
    queue = queue_of(one(3, name="big"), one(1, name="left"), one(1, name="right"))
    tickets = [ticket_of(str(number)) for number in range(5)]
    for ticket in tickets:
        queue.submit(ticket, 0.0)
    assert [replica_of(t) for t in tickets] == ["big", "big", "left", "right", "big"]


def test_a_full_queue_refuses_by_count_and_by_bytes() -> None:
    queue = queue_of(limit=2, limit_bytes=10)
    assert outcome(queue, ticket_of("1", size=4), 0.0) == WAITING
    assert outcome(queue, ticket_of("2", size=7), 0.0) == End.SHARE_FULL
    second = ticket_of("3", size=4)
    assert outcome(queue, second, 0.0) == WAITING
    assert outcome(queue, ticket_of("4", size=0), 0.0) == End.SHARE_FULL
    assert queue.grow(second, 2).ended == ()
    assert (queue.queued, queue.queued_bytes) == (2, 10)
    assert list(queue.grow(second, 1).ended) == [(second, End.SHARE_FULL)]
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
    assert queue.retry_after_s(4.0) == pytest.approx(10 * 4.0 / 2)


def test_a_ticket_that_was_given_back_is_first_again_and_its_replica_is_out() -> None:
    queue = queue_of(one())
    first, second = ticket_of("1"), ticket_of("2")
    queue.submit(first, 0.0)
    queue.submit(second, 0.0)
    assert not queue.give_back(first, 1.0).granted
    assert names(queue.waiting) == ["1", "2"]
    assert queue.next_event_at() == 1.0 + OUT_S
    assert names(queue.advance(1.0 + OUT_S).granted) == ["1"]


def test_a_new_table_lets_a_replica_back_in_at_once() -> None:
    queue = queue_of(one())
    ticket = ticket_of("1")
    queue.submit(ticket, 0.0)
    queue.give_back(ticket, 1.0)
    assert names(queue.set_replicas([one()], 1.1).granted) == ["1"]


def test_draining_and_gone_replicas_keep_their_slots_and_get_nothing() -> None:
    for table in ([one(2, draining=True)], []):
        queue = queue_of(one(2))
        running = ticket_of("1")
        queue.submit(running, 0.0)
        queue.set_replicas(table, 1.0)
        assert outcome(queue, ticket_of("2"), 1.0) == WAITING
        assert queue.in_flight == 1
        assert not queue.release(running, 2.0).granted
        assert queue.in_flight == 0


def test_a_replica_that_comes_back_still_has_its_slots_taken() -> None:
    queue = queue_of(one())
    running = ticket_of("1")
    queue.submit(running, 0.0)
    queue.set_replicas([], 1.0)
    assert not queue.set_replicas([one()], 2.0).granted
    assert outcome(queue, ticket_of("2"), 2.0) == WAITING
    assert names(queue.release(running, 3.0).granted) == ["2"]


def test_lower_concurrency_waits_until_enough_slots_are_back() -> None:
    queue = queue_of(one(3))
    running = [ticket_of(str(number)) for number in range(3)]
    for ticket in running:
        queue.submit(ticket, 0.0)
    queue.submit(ticket_of("next"), 0.0)
    queue.set_replicas([one(1)], 1.0)
    assert not queue.release(running[0], 2.0).granted
    assert not queue.release(running[1], 2.0).granted
    assert names(queue.release(running[2], 2.0).granted) == ["next"]


def test_the_clock_starts_when_a_replica_is_open() -> None:
    queue = queue_of()
    ticket = ticket_of("1")
    queue.submit(ticket, 0.0)
    assert ticket.ends_at == HOLD_S
    queue.submit(ticket_of("2"), 0.0)
    queue.set_replicas([one()], 100.0)
    assert ticket.ends_at == 100.0 + TIMEOUT_S
    assert queue.next_event_at() == 100.0 + TIMEOUT_S


def test_expired_tickets_leave_the_line_but_keep_their_slots() -> None:
    queue = queue_of(one())
    running, waiting = ticket_of("1"), ticket_of("2")
    queue.submit(running, 0.0)
    queue.submit(waiting, 0.0)
    ended = queue.advance(TIMEOUT_S).ended
    assert set(ended) == {(waiting, End.WAITING), (running, End.RUNNING)}
    assert (queue.queued, queue.in_flight) == (0, 1)
    assert not queue.advance(TIMEOUT_S + 1).ended
    assert outcome(queue, ticket_of("3", TIMEOUT_S), TIMEOUT_S) == WAITING
    assert names(queue.release(running, TIMEOUT_S + 5).granted) == ["3"]


def test_without_a_replica_the_hold_limit_ends_the_wait() -> None:
    queue = queue_of()
    ticket = ticket_of("1")
    queue.submit(ticket, 0.0)
    assert not queue.advance(HOLD_S - 1).ended
    assert list(queue.advance(HOLD_S).ended) == [(ticket, End.NO_REPLICA)]


def test_a_ticket_without_a_slot_waits_for_a_replica_only() -> None:
    queue = queue_of()
    ready = ticket_of("ready", slot=False)
    assert outcome(queue, ready, 0.0) == WAITING
    queue.submit(ticket_of("1"), 0.0)
    queue.submit(ticket_of("2"), 0.0)
    assert names(queue.set_replicas([one()], 1.0).granted) == ["ready", "1"]
    past = ticket_of("past the queue", slot=False)
    assert outcome(queue, past, 1.0) == RUNNING
    assert queue.in_flight == 1
    assert not queue.release(past, 2.0).granted
    assert (queue.completed, queue.service.mean_s) == (0, 0.0)
