"""Whose time is over, and when the next one's is."""

from __future__ import annotations

import math
import random

from hotplate.serving.gateway.queue.deadlines import STALE_MOST, Deadlines
from hotplate.serving.gateway.queue.ticket import ENDED, WAITING, Ticket


def ticket(number: int, ends_at: float) -> Ticket[str]:
    made = Ticket(str(number), 0.0, 60.0, 60.0)
    made.number, made.ends_at, made.state = number, ends_at, WAITING
    return made


def expired(deadlines: Deadlines[str], now: float) -> list[str]:
    return [each.waiter for each in deadlines.expired(now)]


def test_tickets_expire_by_their_deadline_and_then_by_their_arrival() -> None:
    deadlines: Deadlines[str] = Deadlines()
    assert deadlines.next_at == math.inf
    for number, ends_at in enumerate((3.0, 1.0, 2.0, 1.0, math.inf)):
        deadlines.add(ticket(number, ends_at))
    assert len(deadlines) == 4
    assert deadlines.next_at == 1.0
    assert expired(deadlines, 0.9) == []
    assert expired(deadlines, 2.0) == ["1", "3", "2"]
    assert deadlines.next_at == 3.0
    assert expired(deadlines, 3.0) == ["0"]
    assert deadlines.next_at == math.inf


def test_what_has_ended_expired_or_changed_is_passed_over() -> None:
    deadlines: Deadlines[str] = Deadlines()
    gone, late, moved, there = (ticket(n, 1.0 + n) for n in range(4))
    for each in (gone, late, moved, there):
        deadlines.add(each)
    gone.state, late.expired, moved.ends_at = ENDED, True, 9.0
    assert deadlines.next_at == 4.0
    deadlines.add(moved)
    assert expired(deadlines, 9.0) == ["3", "2"]


def test_new_deadlines_replace_the_old_ones() -> None:
    deadlines: Deadlines[str] = Deadlines()
    first, second, third = (ticket(n, 5.0 + n) for n in range(3))
    for each in (first, second, third):
        deadlines.add(each)
    first.ends_at, second.ends_at = 9.0, 1.0
    deadlines.replace([first, second])
    assert len(deadlines) == 3
    assert expired(deadlines, 9.0) == ["1", "2", "0"]


def test_whatever_order_they_come_in_the_earliest_is_first() -> None:
    rng = random.Random(1)
    for _ in range(50):
        deadlines: Deadlines[str] = Deadlines()
        ends_at = [rng.randrange(20) for _ in range(rng.randrange(1, 30))]
        for number, at in enumerate(ends_at):
            deadlines.add(ticket(number, float(at)))
        order = sorted(range(len(ends_at)), key=lambda n: (ends_at[n], n))
        assert expired(deadlines, 20.0) == [str(number) for number in order]


def test_entries_of_tickets_that_have_ended_do_not_pile_up() -> None:
    deadlines: Deadlines[str] = Deadlines()
    kept = [ticket(number, 1e6 + number) for number in range(10)]
    for each in kept:
        deadlines.add(each)
    for number in range(5000):
        each = ticket(100 + number, float(number))
        deadlines.add(each)
        each.state = ENDED
        assert len(deadlines) <= 2 * 11 + STALE_MOST + 1
    assert deadlines.next_at == 1e6
