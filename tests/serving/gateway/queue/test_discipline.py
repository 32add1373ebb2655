"""Who is next, who gets which slot, and who makes room."""

from __future__ import annotations

import math
from collections import deque

import pytest

from hotplate.serving.gateway.protocol.routes import ReplicaRoute
from hotplate.serving.gateway.queue.adaptive_limit import SHORT_STALL_S
from hotplate.serving.gateway.queue.changes import End
from hotplate.serving.gateway.queue.fairness import REMEMBERED
from hotplate.serving.gateway.queue.replica_slots import Replica
from hotplate.serving.gateway.queue.service_time import ENOUGH
from hotplate.serving.gateway.queue.ticket import ENDED, RUNNING, WAITING
from tests.serving.gateway.queue.slot_queues import (
    TIMEOUT_S,
    busy_queue,
    names,
    one,
    order_of,
    outcome,
    queue_of,
    replica_of,
    taught,
    ticket_of,
    turn_over,
)
from tests.support.effort import lines_run


class Writer:
    """A slot recorder: what was last written of each replica."""

    def __init__(self) -> None:
        self.taken: dict[str, int] = {}

    def take(self, replica: Replica, now: float) -> None:
        self.taken[replica.id] = replica.taken

    def release(self, replica: Replica, service_s: float) -> None:
        self.taken[replica.id] = replica.taken


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
    assert queue.waiting.grow(second, 2).ended == ()
    assert (queue.queued, queue.queued_bytes) == (2, 10)
    assert list(queue.waiting.grow(second, 1).ended) == [(second, End.SHARE_FULL)]
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
    assert queue.estimates.retry_after_s(4.0) == pytest.approx(10 * 4.0 / 2)


def test_a_ticket_that_was_given_back_is_first_again_and_waits_while_its_replica_is_out() -> None:
    queue = queue_of(one())
    first, second = ticket_of("1"), ticket_of("2")
    queue.submit(first, 0.0)
    queue.submit(second, 0.0)
    queue.eject("a", "it died")
    assert not queue.requeue(first, 1.0).granted
    assert names(queue.waiting) == ["1", "2"]
    assert not queue.set_replicas([one()], 1.5).granted, "no table knows better"
    assert names(queue.restore("a", 2.0).granted) == ["1"]


def test_what_needs_no_slot_is_first_again_too() -> None:
    queue = queue_of(one())
    first, second = ticket_of("1", slot=False), ticket_of("2", slot=False)
    queue.submit(first, 0.0)
    queue.set_replicas([], 1.0)
    queue.submit(second, 1.0)
    queue.requeue(first, 2.0)
    assert names(queue.waiting) == ["1", "2"]


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


def test_the_more_urgent_go_first_then_who_has_least_time_then_who_came_first() -> None:
    queue, running = busy_queue(
        ticket_of("usual"),
        ticket_of("usual too"),
        ticket_of("late", priority=7, timeout_s=1.0),
        ticket_of("hurried", timeout_s=30.0),
        ticket_of("urgent", priority=0),
        ticket_of("endless", timeout_s=math.inf),
    )
    order = ["urgent", "hurried", "usual", "usual too", "endless", "late"]
    assert names(queue.waiting) == order
    assert order_of(queue, running) == order


def test_held_requests_go_by_the_deadlines_that_they_have_once_a_replica_is_ready() -> None:
    queue = queue_of()
    queue.submit(ticket_of("first", 0.0, timeout_s=10.0), 0.0)
    queue.submit(ticket_of("hurried", 5.0, timeout_s=6.0), 5.0)
    assert names(queue.set_replicas([one()], 20.0).granted) == ["hurried"]


def test_organizations_take_turns() -> None:
    a = [ticket_of(f"a{number}", organization="a") for number in range(4)]
    b = [ticket_of(f"b{number}", organization="b") for number in range(2)]
    queue, running = busy_queue(*a, *b)
    order = ["a0", "b0", "a1", "b1", "a2", "a3"]
    assert names(queue.waiting) == order
    assert order_of(queue, running) == order


def test_a_full_queue_makes_room_for_who_has_less_than_its_share() -> None:
    greedy = [ticket_of(f"a{number}", organization="a") for number in range(4)]
    queue, _ = busy_queue(*greedy, limit=4)
    assert outcome(queue, ticket_of("a4", organization="a"), 0.0) == End.SHARE_FULL
    for pushed_out in (greedy[3], greedy[2]):
        small = ticket_of("b", organization="b")
        assert list(queue.submit(small, 0.0).ended) == [(pushed_out, End.PUSHED_OUT)]
        assert small.state == WAITING
    assert outcome(queue, ticket_of("b2", organization="b"), 0.0) == End.SHARE_FULL
    assert queue.queued == 4


def test_who_has_come_to_fill_most_of_a_full_queue_makes_room() -> None:
    a = [ticket_of("a", organization="a") for _ in range(4)]
    queue, _ = busy_queue(*a, limit=4)
    assert names(t for t, _ in queue.submit(ticket_of("b", organization="b"), 0.0).ended) == ["a"]
    for ticket in a[:2]:
        queue.waiting.cancel(ticket)
    for _ in range(2):
        assert outcome(queue, ticket_of("b", organization="b"), 0.0) == WAITING
    assert names(t for t, _ in queue.submit(ticket_of("c", organization="c"), 0.0).ended) == ["b"]


def test_shares_of_a_full_queue_go_by_weight_and_count_bytes_too() -> None:
    queue, _ = busy_queue(limit=100, limit_bytes=40)
    queue.set_limits(100, 40, {"a": 3.0})
    for name in ("a", "a", "a", "a"):
        queue.submit(ticket_of(name, organization=name, size=10), 0.0)
    small = ticket_of("b", organization="b", size=10)
    assert [end for _, end in queue.submit(small, 0.0).ended] == [End.PUSHED_OUT]
    assert outcome(queue, ticket_of("b", organization="b", size=10), 0.0) == End.SHARE_FULL
    assert outcome(queue, ticket_of("c", organization="c", size=41), 0.0) == End.SHARE_FULL
    assert queue.queued == 4


def test_an_urgent_request_takes_the_place_of_its_own_organization_s_least_urgent() -> None:
    usual, late = ticket_of("usual"), ticket_of("late", priority=7)
    queue, _ = busy_queue(usual, late, limit=2)
    urgent = ticket_of("urgent", priority=0)
    assert list(queue.submit(urgent, 0.0).ended) == [(late, End.PUSHED_OUT)]
    assert outcome(queue, ticket_of("usual"), 0.0) == End.SHARE_FULL
    assert names(queue.waiting) == ["urgent", "usual"]


def test_callers_that_name_ever_new_organizations_are_forgotten() -> None:
    queue = queue_of(one())
    for number in range(5 * REMEMBERED):
        ticket = ticket_of("", number, organization=str(number))
        queue.submit(ticket, number)
        queue.release(ticket, number + 1)
    assert queue.fair_queue.known_flows <= 2 * REMEMBERED


def test_a_request_costs_the_same_beside_ten_others_as_beside_thousands() -> None:
    """Counted in calls and lines of the queue's own code, which other work cannot slow down."""
    costs = []
    for others in (10, 1000):
        queue = queue_of(one(others), limit=others + 1)
        running = deque(ticket_of("", organization=str(n % 5)) for n in range(others))
        for ticket in running:
            queue.submit(ticket, 0.0)
        for number in range(others):
            queue.submit(ticket_of("", organization=str(number % 5)), 0.0)
        costs.append(lines_run(lambda: turn_over(queue, running, 200)))  # noqa: B023
    assert costs[1] <= 1.2 * costs[0]


def test_the_recorder_knows_which_slots_are_taken_whichever_ticket_gets_the_next_one() -> None:
    queue = queue_of(one(1))
    queue.granted.slot_recorder = recorder = Writer()
    for number in range(2 * ENOUGH):  # until it is known that a request takes ten seconds
        ticket = ticket_of("usual", 10.0 * number)
        queue.submit(ticket, ticket.arrived_at)
        queue.release(ticket, ticket.arrived_at + 10.0)
        assert recorder.taken == {"a": 0}
    now = 10.0 * 2 * ENOUGH
    first, second, third = (ticket_of(name, now) for name in ("1", "2", "3"))
    for ticket in (first, second, third):
        queue.submit(ticket, now)
    assert names(queue.release(first, now + 20.0).granted) == ["2"]
    assert (recorder.taken, queue.in_flight) == ({"a": 1}, 1), "the slot went on to the next"
    assert not queue.release(second, now + TIMEOUT_S - 5.0).granted, "nobody is in time for it"
    assert third.state == ENDED
    assert (recorder.taken, queue.in_flight) == ({"a": 0}, 0), "it came back"


def test_a_learnt_number_of_slots_is_looked_at_while_others_wait() -> None:
    learning, fixed = ReplicaRoute("a", "h:1", 1, learns=True), ReplicaRoute("a", "h:1", 1)
    for table, others, at in ((learning, 1, 9.0 + SHORT_STALL_S), (learning, 0, math.inf)):
        queue = queue_of(table)
        for number in range(1 + others):
            queue.submit(ticket_of(str(number)), 0.0)
        assert queue.stalls_at(9.0) == at
        queue.set_replicas([fixed], 0.0)
        assert queue.stalls_at(9.0) == math.inf


@pytest.mark.parametrize(
    ("late_s", "others", "granted"),
    [(0.0, 0, True), (0.0, 1, False), (0.0, 2, False), (-0.03, 1, True), (0.02, 0, False)],
)
def test_a_slot_goes_to_who_can_use_it_with_a_fair_chance_where_others_wait(
    late_s: float, others: int, granted: bool
) -> None:
    """A request takes 1 s; its ways take 0.025 s more, which count where others wait."""
    queue = taught(queue_of(one()), 1.0)
    running, ticket = ticket_of("running"), ticket_of("late", timeout_s=2.5)
    for each in (running, ticket, *(ticket_of("other") for _ in range(others))):
        queue.submit(each, 0.0)
    changes = queue.release(running, 2.5 - 1.01 + late_s)
    assert (ticket in changes.granted) is granted
    assert (ticket.state == RUNNING) is granted


def test_nobody_pays_later_for_slots_that_nobody_else_wanted() -> None:
    queue = queue_of(one())
    running = ticket_of("b", organization="b")
    queue.submit(running, 0.0)
    for now, name in ((0.0, "a"), (1.0, "b")):  # `a` takes a hundred seconds, while `b` waits
        following = ticket_of(name, organization=name, timeout_s=math.inf)
        queue.submit(following, now)
        now += 1.0 if name == "a" else 100.0
        queue.release(running, now)
        running = following
    queue.release(running, 102.0)
    assert queue.idle
    running = ticket_of("running", 200.0, organization="c")
    queue.submit(running, 200.0)
    for name in ("a1", "a2", "b1", "b2", "b3"):
        queue.submit(ticket_of(name, 200.0, organization=name[0]), 200.0)
    order = order_of(queue, running)
    assert order.index("a1") < order.index("b3")
