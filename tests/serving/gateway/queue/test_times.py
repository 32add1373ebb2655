"""When tickets expire, what the queue learns of times, and whom it refuses by them."""

from __future__ import annotations

import pytest

from hotplate.serving.gateway.queue.changes import End
from hotplate.serving.gateway.queue.fairness import COST_WEIGHT, USUAL_COST_S
from hotplate.serving.gateway.queue.service_time import ENOUGH, FRESH_S
from hotplate.serving.gateway.queue.ticket import RUNNING, WAITING
from tests.serving.gateway.queue.slot_queues import (
    HOLD_S,
    TIMEOUT_S,
    busy_queue,
    names,
    one,
    outcome,
    queue_of,
    taught,
    ticket_of,
)


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
    assert running.expired
    assert not queue.advance(TIMEOUT_S + 1).ended
    assert queue.next_event_at() is None
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


def test_who_cannot_be_answered_in_time_is_refused_as_it_comes() -> None:
    queue = taught(queue_of(one(2)), 1.0)
    assert outcome(queue, ticket_of("too short", timeout_s=0.9), 0.0) == End.NO_CAPACITY
    for _ in range(8):
        queue.submit(ticket_of("", timeout_s=4.0), 0.0)  # 2 run, 6 wait: 3 s of work
    assert outcome(queue, ticket_of("late", timeout_s=4.0), 0.0) == End.NO_CAPACITY
    assert queue.estimates.retry_after_s(0.0) == pytest.approx(3.0)
    assert outcome(queue, ticket_of("in time", timeout_s=4.2), 0.0) == WAITING
    # It goes before all who have more time, so they are nothing to it.
    assert outcome(queue, ticket_of("next", timeout_s=1.5), 0.0) == WAITING
    assert outcome(queue, ticket_of("other", timeout_s=3.9, organization="b"), 0.0) == WAITING


def test_who_has_its_turn_too_late_gets_no_slot() -> None:
    queue = taught(queue_of(one()), 1.0)
    running, late, next_one = ticket_of("1"), ticket_of("late", timeout_s=2.5), ticket_of("next")
    for ticket in (running, late, next_one):
        queue.submit(ticket, 0.0)
    changes = queue.release(running, 2.0)
    assert list(changes.ended) == [(late, End.NO_CAPACITY)]
    assert names(changes.granted) == ["next"]


def test_nothing_is_refused_for_its_time_while_nothing_is_known() -> None:
    queue, _ = busy_queue(*[ticket_of(str(number)) for number in range(50)])
    assert outcome(queue, ticket_of("short", timeout_s=0.01), 0.0) == WAITING


def test_a_start_is_estimated_from_the_newest_cold_start() -> None:
    queue = queue_of()
    assert queue.estimates.start_s(0, 0.0) is None
    queue.submit(ticket_of("1", 10.0), 10.0)
    queue.set_replicas([one()], 40.0)
    queue.set_replicas([], 50.0)
    queue.submit(ticket_of("2", 60.0), 60.0)
    assert queue.estimates.start_s(1, 75.0) == 15.0
    assert queue.estimates.retry_after_s(75.0) == 15.0


@pytest.mark.parametrize("others_wait", [False, True])
@pytest.mark.parametrize(("how", "learnt"), [("release", 1), ("withdraw", 0), ("requeue", 0)])
def test_only_requests_that_were_served_say_how_long_others_take(
    how: str, learnt: int, others_wait: bool
) -> None:
    queue = queue_of(one(3))
    tickets = [ticket_of("", organization=name) for name in ("a", "a", "b")]
    for ticket in (*tickets, *([ticket_of("", organization="b")] if others_wait else ())):
        queue.submit(ticket, 0.0)
    getattr(queue, how)(tickets[0], 11.0)
    assert (queue.completed, queue.service.seen) == (learnt, learnt)
    costs_s = {flow.name: flow.cost_s for flow in queue.fair_queue.flows}
    assert costs_s["a"] == pytest.approx(USUAL_COST_S * (1 + 10 * COST_WEIGHT * learnt))


def test_a_response_counts_once_while_it_goes_on_if_its_request_has_a_slot() -> None:
    queue = queue_of(one(2))
    tickets = [ticket_of("1"), ticket_of("2"), ticket_of("3", slot=False)]
    for ticket in tickets:
        queue.submit(ticket, 0.0)
        queue.response_began(ticket, 1.0)
        queue.response_began(ticket, 2.0)
    (replica,) = queue.replicas
    assert (replica.responding, replica.stalled) == (2, True)
    assert not queue.advance(10 * TIMEOUT_S).ended, "there is no time limit for them"
    for left, ticket in enumerate(reversed(tickets[:2])):
        queue.release(ticket, 3.0)
        assert (replica.responding, replica.stalled) == (1 - left, False)


def test_what_needs_no_slot_has_a_time_limit_and_is_refused_if_too_many_wait() -> None:
    queue = queue_of(limit=2, limit_bytes=10)
    assert outcome(queue, ticket_of("large", size=11, slot=False), 0.0) == End.SHARE_FULL
    ticket = ticket_of("1", size=10, slot=False)
    assert outcome(queue, ticket, 0.0) == WAITING
    assert outcome(queue, ticket_of("2", size=0, slot=False), 0.0) == WAITING
    assert outcome(queue, ticket_of("3", size=0, slot=False), 0.0) == End.SHARE_FULL
    assert names(queue.set_replicas([one()], 1.0).granted) == ["1", "2"]
    running = ticket_of("4", 1.0, slot=False)
    assert outcome(queue, running, 1.0) == RUNNING
    assert queue.next_event_at() == 1.0 + TIMEOUT_S
    ended = queue.advance(1.0 + TIMEOUT_S).ended
    assert [(ticket.waiter, end) for ticket, end in ended] == [
        (name, End.RUNNING) for name in ("1", "2", "4")
    ]


def test_what_was_learnt_long_ago_refuses_nobody() -> None:
    queue = taught(queue_of(one()), 1.0)
    assert outcome(queue, ticket_of("", 1.0, timeout_s=0.9), 1.0) == End.NO_CAPACITY
    now = 2 * FRESH_S
    assert outcome(queue, ticket_of("", now, timeout_s=0.9), now) == RUNNING


def test_a_body_that_arrives_after_its_response_began_says_nothing_of_the_first_byte() -> None:
    queue = queue_of(one())
    for number in range(ENOUGH):
        ticket = ticket_of("", 10.0 * number)
        queue.submit(ticket, ticket.arrived_at)
        queue.response_began(ticket, ticket.arrived_at + 3.0)
        ticket.body_received_at = ticket.arrived_at + 5.0
        queue.release(ticket, ticket.arrived_at + 8.0)
    assert (queue.service.mean_s, queue.service.least_s) == (3.0, 0.0)


@pytest.mark.parametrize(
    ("cancelled", "cold_start_s"), [((), 30.0), ((0,), 30.0), ((1,), 30.0), ((0, 1), 5.0)]
)
def test_a_cold_start_lasts_as_long_as_somebody_waits_for_it(
    cancelled: tuple[int, ...], cold_start_s: float
) -> None:
    queue = queue_of()
    tickets = [ticket_of("1", 10.0, slot=False), ticket_of("2", 10.0)]
    for ticket in tickets:
        queue.submit(ticket, 10.0)
    for index in cancelled:
        queue.waiting.cancel(tickets[index])
    queue.submit(ticket_of("3", 35.0), 35.0)
    queue.set_replicas([one()], 40.0)
    assert queue.waiting.cold_start_s == cold_start_s
    assert queue.waiting.cold_start_began_at is None


def test_a_cold_start_begins_where_the_last_replica_goes_while_others_wait() -> None:
    queue, _ = busy_queue(ticket_of("waiting"))
    assert queue.waiting.cold_start_began_at is None
    queue.set_replicas([], 20.0)
    assert queue.waiting.cold_start_began_at == 20.0
    queue.set_replicas([one(2)], 32.0)
    assert (queue.waiting.cold_start_s, queue.waiting.cold_start_began_at) == (12.0, None)
