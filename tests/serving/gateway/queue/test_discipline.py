from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

import pytest

from hotplate.serving.gateway.protocol.routes import ReplicaRoute
from hotplate.serving.gateway.queue.adaptive_limit import SHORT_STALL_S
from hotplate.serving.gateway.queue.changes import End
from hotplate.serving.gateway.queue.discipline import SlotQueue
from hotplate.serving.gateway.queue.fairness import COST_WEIGHT, REMEMBERED, USUAL_COST_S
from hotplate.serving.gateway.queue.replica_slots import Replica
from hotplate.serving.gateway.queue.service_time import ENOUGH, FRESH_S
from hotplate.serving.gateway.queue.ticket import ENDED, RUNNING, WAITING, Ticket
from tests.support.effort import lines_run

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
    return refused[0] if refused else ticket.state


def names(tickets: Iterable[Ticket[str]]) -> list[str]:
    return [ticket.waiter for ticket in tickets]


class Writer:
    """A slot recorder: what was last written of each replica."""

    def __init__(self) -> None:
        self.taken: dict[str, int] = {}

    def take(self, replica: Replica, now: float) -> None:
        self.taken[replica.id] = replica.taken

    def release(self, replica: Replica, service_s: float) -> None:
        self.taken[replica.id] = replica.taken


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


def order_of(queue: SlotQueue[str], running: Ticket[str]) -> list[str]:
    """How all that wait go, one after the other, in one slot."""
    gone = []
    while granted := queue.release(running, 0.0).granted:
        (running,) = granted
        gone.append(running.waiter)
    return gone


def busy_queue(*waiting: Ticket[str], **limits: int) -> tuple[SlotQueue[str], Ticket[str]]:
    """A queue whose one slot is taken, and who has it."""
    queue, running = queue_of(one(), **limits), ticket_of("running", organization="first")
    queue.submit(running, 0.0)
    for ticket in waiting:
        queue.submit(ticket, 0.0)
    return queue, running


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


def taught(queue: SlotQueue[str], service_s: float) -> SlotQueue[str]:
    """The queue after some requests that took so long, the last until 0."""
    for number in range(20):
        began = (number - 20) * service_s
        ticket = ticket_of("before", began)
        queue.submit(ticket, began)
        queue.release(ticket, began + service_s)
    return queue


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


def turn_over(queue: SlotQueue[str], running: deque[Ticket[str]], times: int) -> None:
    for number in range(times):
        running.extend(queue.release(running.popleft(), 0.0).granted)
        queue.submit(ticket_of("", organization=str(number % 5)), 0.0)
        queue.next_event_at()


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
