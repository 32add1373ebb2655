"""Requests whose bodies still come, told the time."""

from __future__ import annotations

from dataclasses import dataclass

from hotplate.serving.gateway.arrivals import Arrivals
from hotplate.serving.gateway.limits import Limits

LIMITS = Limits(grace_s=0.05, stall_s=3, slow_bytes_per_s=1000, wary_s=30)


@dataclass(eq=False)
class Upload:
    """A request as the rules see it."""

    awaited: bool = True
    holds_place: bool = True
    received: int = 0
    came_at: float = 0.0
    granted_at: float = 0.0

    def silent_s(self, now: float) -> float:
        return now - self.came_at

    def held_s(self, now: float) -> float:
        return now - self.granted_at


def waiting(count: int) -> tuple[Arrivals[Upload], list[Upload]]:
    arrivals: Arrivals[Upload] = Arrivals(lambda: LIMITS)
    uploads = [Upload() for _ in range(count)]
    for upload in uploads:
        arrivals.expect(upload, 0.0)
    return arrivals, uploads


def test_nobody_goes_before_its_grace_is_over_and_not_if_it_is_complete_by_then() -> None:
    arrivals, (early, complete) = waiting(2)
    assert arrivals.next_at(0.0) == 0.05
    assert arrivals.entering(8, 0.04) == []
    complete.awaited = False
    assert arrivals.entering(8, 0.05) == [early]
    assert arrivals.next_at(0.05) is None


def test_half_of_the_slots_at_least_one_in_the_order_of_arrival() -> None:
    for slots, most in ((0, 1), (1, 1), (3, 1), (4, 2), (9, 4)):
        arrivals, uploads = waiting(6)
        entering = arrivals.entering(slots, 0.05)
        assert entering == uploads[:most]
        for upload in entering:
            arrivals.entered(upload)
        assert arrivals.entering(slots, 0.06) == []
        uploads[0].holds_place = False
        assert arrivals.entering(slots, 0.07) == [uploads[most]]


def test_one_that_is_forgotten_does_not_go() -> None:
    arrivals, (first, second) = waiting(2)
    arrivals.entered(Upload())
    assert arrivals.entering(1, 1.0) == []
    arrivals.forget(first)
    assert arrivals.entering(4, 1.0) == [second]


def test_one_that_stands_still_or_drips_leaves_and_then_nobody_goes_for_a_while() -> None:
    arrivals, (silent, dripping, steady, upload) = waiting(4)
    for each in (silent, dripping, steady):
        each.awaited = False
        arrivals.entered(each)
    dripping.came_at, dripping.received = 2.9, 9
    steady.came_at, steady.received = 2.9, 4000
    assert arrivals.stalled(2.9) == []
    assert arrivals.stalled(3.01) == [silent, dripping]
    silent.holds_place = dripping.holds_place = False
    assert arrivals.entering(9, 5.0) == []
    assert arrivals.next_at(5.0) == 33.01
    assert arrivals.entering(9, 33.01) == [upload]
