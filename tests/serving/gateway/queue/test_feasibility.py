"""Which requests can no longer be answered in time, and what callers are told of the queue."""

from __future__ import annotations

import pytest

from hotplate.serving.gateway.queue.fairness import FairQueue
from hotplate.serving.gateway.queue.feasibility import (
    TRANSIT,
    TRANSIT_MOST_S,
    comes_too_late,
    is_hopeless,
    transit_s,
)
from hotplate.serving.gateway.queue.service_time import FRESH_S, ServiceTime
from hotplate.serving.gateway.queue.ticket import Ticket


def ticket(ends_at: float, timeout_s: float = 2.0) -> Ticket[str]:
    made = Ticket("", 0.0, timeout_s, 60.0)
    made.ends_at = ends_at
    return made


@pytest.mark.parametrize(
    ("timeout_s", "expected_s"),
    [(1.0, TRANSIT), (4.0, 4 * TRANSIT), (60.0, TRANSIT_MOST_S)],
)
def test_the_way_takes_a_part_of_the_time(timeout_s: float, expected_s: float) -> None:
    assert transit_s(ticket(0.0, timeout_s)) == pytest.approx(expected_s)


@pytest.mark.parametrize(
    ("remaining_s", "contended", "hopeless"),
    [
        (1.0, False, False),
        (0.99, False, True),
        (1.0 + 2 * TRANSIT + 0.001, True, False),
        (1.0 + 2 * TRANSIT - 0.001, True, True),
    ],
)
def test_a_request_needs_as_long_as_others_took(
    remaining_s: float, contended: bool, hopeless: bool
) -> None:
    service = ServiceTime()
    for _ in range(50):
        service.learn(1.0, 1.0, 100.0)
    assert (service.least_s, service.fair_s) == (1.0, 1.0)
    asked = ticket(100.0 + remaining_s)
    assert is_hopeless(asked, service, 100.0, contended=contended) is hopeless
    later = ticket(100.0 + 2 * FRESH_S + remaining_s)
    assert not is_hopeless(later, service, 100.0 + 2 * FRESH_S, contended=contended)


@pytest.mark.parametrize(
    ("remaining_s", "waiting", "slots", "is_new", "too_late"),
    [
        (5.06, 8, 2, True, False),  # 4 s until its turn, 1 s for itself, 0.05 s on the way
        (5.04, 8, 2, True, True),
        (4.06, 9, 3, True, False),
        (4.04, 9, 3, True, True),
        (4.01, 8, 2, False, False),
        (3.99, 8, 2, False, True),
        (1.06, 0, 1, True, False),
    ],
)
def test_a_request_comes_too_late_behind_so_many(
    remaining_s: float, waiting: int, slots: int, is_new: bool, too_late: bool
) -> None:
    service, now = ServiceTime(), 100.0
    for _ in range(50):
        service.learn(1.0, 1.0, now if is_new else now - 2 * FRESH_S)
    queue: FairQueue[str] = FairQueue(service)
    for number in range(waiting):
        before = ticket(now + 1.0)
        before.number = number
        queue.join(before)
    asked = ticket(now + remaining_s, timeout_s=60.0)
    asked.number = waiting
    assert comes_too_late(asked, queue, service, slots, now) is too_late
    urgent = ticket(now + remaining_s, timeout_s=60.0)
    urgent.number, urgent.priority = waiting, 0
    assert not comes_too_late(urgent, queue, service, slots, now), "it goes before all others"
