"""Requests whose bodies still come, told the time."""

from __future__ import annotations

from dataclasses import dataclass

from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.proxy.slow_bodies import SlowBodies

LIMITS = Limits(grace_s=0.05, stall_s=3, slow_bytes_per_s=1000, wary_s=30)


@dataclass(eq=False)
class Upload:
    """A request as the rules see it."""

    address: bytes = b"192.0.2.1"
    in_chunks: bool = False
    awaited: bool = True
    is_uploading: bool = True
    received: int = 0
    spooled_bytes: int = 0
    came_at: float = 0.0
    granted_at: float = 0.0

    def silent_s(self, now: float) -> float:
        return now - self.came_at

    def slot_age_s(self, now: float) -> float:
        return now - self.granted_at


def waiting(*uploads: Upload) -> SlowBodies[Upload]:
    arrivals: SlowBodies[Upload] = SlowBodies(lambda: LIMITS)
    for upload in uploads:
        arrivals.expect(upload, 0.0)
    return arrivals


def test_nobody_goes_before_its_grace_is_over_and_not_if_it_is_complete_by_then() -> None:
    early, complete = Upload(), Upload()
    arrivals = waiting(early, complete)
    assert arrivals.next_at() == 0.05
    assert arrivals.take_eligible(8, 8, 0.04) == []
    complete.awaited = False
    assert arrivals.take_eligible(8, 8, 0.05) == [early]
    assert arrivals.next_at() is None


def test_half_of_the_slots_are_lent_while_another_one_stays_free() -> None:
    for slots, free, most in (
        (0, 0, 0),
        (1, 1, 0),
        (2, 2, 1),
        (2, 1, 0),
        (3, 3, 1),
        (4, 4, 2),
        (9, 9, 4),
        (9, 3, 2),
    ):
        uploads = [Upload() for _ in range(6)]
        arrivals = waiting(*uploads)
        entering = arrivals.take_eligible(slots, free, 0.05)
        assert entering == uploads[:most]
        for upload in entering:
            arrivals.began(upload)
        if slots // 2 == most:
            assert arrivals.take_eligible(slots, slots, 0.06) == []
        if most:
            uploads[0].is_uploading = False
            assert arrivals.take_eligible(slots, slots, 0.07)[0] is uploads[most]


def test_one_of_which_much_is_here_goes_at_once_where_one_may_go() -> None:
    arrivals = waiting()
    assert arrivals.lends(Upload(), slots=2, free=2, now=0.0)
    assert not arrivals.lends(Upload(), slots=2, free=1, now=0.0)
    arrivals.began(Upload())
    assert not arrivals.lends(Upload(), slots=2, free=2, now=0.0)


def test_one_that_is_forgotten_does_not_go() -> None:
    first, second = Upload(), Upload()
    arrivals = waiting(first, second)
    assert arrivals.take_eligible(1, 1, 1.0) == []
    arrivals.forget(first)
    assert arrivals.take_eligible(4, 4, 1.0) == [second]


def test_one_in_chunks_that_stands_still_may_want_to_hear_something() -> None:
    """Any free slot is lent to it, one at a time; it leaves as soon as another one waits."""
    silent, sending, counted = Upload(in_chunks=True), Upload(in_chunks=True), Upload()
    arrivals = waiting(silent, sending, counted)
    sending.came_at = 2.9
    assert arrivals.take_eligible(1, 1, 2.9) == []
    assert arrivals.take_eligible(1, 0, 3.0) == []
    assert arrivals.any_eligible
    assert arrivals.take_eligible(1, 1, 3.1) == [silent]
    arrivals.began(silent)
    silent.granted_at = 3.1
    sending.came_at = 3.0
    assert arrivals.take_eligible(1, 1, 6.2) == []
    assert arrivals.next_stall_at(6.2) == 6.2
    assert arrivals.stalled(6.2) == [silent]
    silent.is_uploading = False
    assert arrivals.take_eligible(1, 1, 6.3) == [], "the address has lost a slot"


def test_one_that_stands_still_or_drips_leaves_and_its_address_has_no_credit() -> None:
    silent, dripping, steady, again = (Upload(b"192.0.2.1") for _ in range(4))
    other = Upload(b"192.0.2.2")
    arrivals = waiting(silent, dripping, steady, again, other)
    for each in (silent, dripping, steady):
        each.awaited = False
        arrivals.began(each)
    dripping.came_at, dripping.received = 2.9, 9
    steady.came_at, steady.received = 2.9, 4000
    assert arrivals.stalled(2.9) == []
    assert arrivals.stalled(3.01) == [silent, dripping]
    silent.is_uploading = dripping.is_uploading = False
    assert arrivals.take_eligible(9, 9, 5.0) == [other]
    assert not arrivals.lends(again, 9, 9, 33.0)
    assert arrivals.lends(again, 9, 9, 33.1)


def test_for_lack_of_room_goes_who_stands_still_then_the_fullest_address_and_then_nobody() -> None:
    small = Upload(b"192.0.2.1", spooled_bytes=10, came_at=9)
    big = Upload(b"192.0.2.2", spooled_bytes=50, came_at=8)
    bigger = Upload(b"192.0.2.2", spooled_bytes=20, came_at=9)
    still = Upload(b"192.0.2.3", spooled_bytes=1, came_at=5)
    held = Upload(b"192.0.2.4", came_at=1)
    arrivals = waiting(small, big, bigger, still, held)
    assert arrivals.to_push_out(small, 5, now=9) is still
    arrivals.forget(still)
    assert arrivals.to_push_out(small, 5, now=9) is big
    assert arrivals.to_push_out(big, 5, now=9) is None
    assert arrivals.to_push_out(small, 61, now=9) is None
