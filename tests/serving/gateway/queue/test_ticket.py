"""The order of one organization's tickets, however they come and leave."""

from __future__ import annotations

import random

import pytest

from hotplate.serving.gateway.queue.ticket import (
    GONE_LEAST,
    NEVER,
    NO_DEADLINE_S,
    OVERTAKEN_MOST,
    STARVING_S,
    FlowQueue,
    Ticket,
    sort_key,
)


def ticket(
    number: int, ends_at: float = 60.0, priority: int = 3, arrived_at: float = 0.0
) -> Ticket[int]:
    made = Ticket(number, arrived_at, 60.0, 60.0, priority=priority)
    made.number, made.ends_at = number, ends_at
    return made


def queue_of(*tickets: Ticket[int]) -> FlowQueue[int]:
    queue: FlowQueue[int] = FlowQueue()
    for each in tickets:
        queue.join(each)
    return queue


def drained(queue: FlowQueue[int], now: float = 0.0) -> list[int]:
    return [queue.take(now).waiter for _ in range(queue.count)]


def test_a_new_ticket_is_nobodys_yet() -> None:
    made = Ticket("", 1.0, 2.0, 3.0)
    assert (made.size_bytes, made.needs_slot, made.expired) == (0, True, False)
    assert (made.is_sample, made.response_began_at) == (True, 0.0)
    assert made.body_received_at < made.arrived_at


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ticket(2, 90.0, priority=2), ticket(1, 60.0, priority=3)),
        (ticket(2, 60.0), ticket(1, 90.0)),
        (ticket(1), ticket(2)),
        (ticket(2, 59.0), ticket(1, NEVER)),
        (ticket(1, NEVER), ticket(2, NO_DEADLINE_S + 1)),
        (ticket(1, NEVER), ticket(2, NO_DEADLINE_S)),
    ],
)
def test_tickets_go_by_priority_then_deadline_then_arrival(
    first: Ticket[int], second: Ticket[int]
) -> None:
    for order in ((first, second), (second, first)):
        queue = queue_of(*order)
        assert queue.last is second
        assert [queue.ahead(first), queue.ahead(second)] == [0, 1]
        assert list(queue) == [first, second]
        assert drained(queue) == [first.waiter, second.waiter]


def test_any_order_of_coming_and_leaving_keeps_the_queue_sorted() -> None:
    rng = random.Random(1)
    for _ in range(20):
        queue = queue_of()
        waiting: list[Ticket[int]] = []
        for number in range(400):
            each = ticket(number, float(rng.randrange(9)), rng.randrange(3))
            assert queue.ahead(each) == sum(sort_key(one) < sort_key(each) for one in waiting)
            queue.join(each)
            waiting = sorted([*waiting, each], key=sort_key)
            while waiting and rng.random() < 0.49:
                gone = rng.choice((waiting[0], waiting[-1], rng.choice(waiting)))
                queue.leave(gone)
                waiting.remove(gone)
            assert queue.count == len(waiting)
            assert list(queue) == waiting
            if waiting:
                assert queue.last is waiting[-1]
        assert drained(queue) == [each.waiter for each in waiting]


def test_tickets_are_sorted_again_after_their_deadlines_have_changed() -> None:
    first, second, third = ticket(1, 10.0), ticket(2, 20.0), ticket(3, 30.0)
    queue = queue_of(first, second, third)
    assert queue.take(0.0) is first
    second.ends_at = 40.0
    queue.sort()
    assert drained(queue) == [3, 2]


def test_those_who_went_are_dropped_together() -> None:
    count = 3 * GONE_LEAST
    queue = queue_of(*(ticket(number, float(number)) for number in range(count)))
    for number in range(count):
        assert queue.take(0.0).waiter == number
        assert queue.count == count - number - 1
        assert queue.ahead(ticket(count, 1e9)) == queue.count


def urgent(count: int, begin: int = 100) -> list[Ticket[int]]:
    return [ticket(begin + number, priority=0, arrived_at=100.0) for number in range(count)]


@pytest.mark.parametrize(
    ("waited_s", "turns"), [(STARVING_S, 8), (STARVING_S + 0.1, OVERTAKEN_MOST)]
)
def test_after_some_urgent_ones_one_that_has_waited_for_long_goes(
    waited_s: float, turns: int
) -> None:
    now = 100.0
    queue = queue_of(ticket(1, arrived_at=now - waited_s), *urgent(8))
    order = drained(queue, now)
    assert order.index(1) == turns


def test_of_those_that_have_waited_the_one_that_waited_longest_goes() -> None:
    queue = queue_of(
        ticket(1, priority=2, arrived_at=20.0),
        ticket(2, priority=3, arrived_at=10.0),
        ticket(3, priority=2, arrived_at=30.0),
        *urgent(9),
    )
    order = drained(queue, 100.0)
    assert [number for number in order if number < 100] == [2, 1, 3]
    assert [order.index(number) for number in (2, 1, 3)] == [
        OVERTAKEN_MOST,
        2 * OVERTAKEN_MOST + 1,
        3 * OVERTAKEN_MOST + 2,
    ]
