"""Who acts of several control planes, under a clock of the test's own."""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass, field, replace

import pytest

from hotplate.platform.leadership.election import (
    LATE_S,
    LOOK_S,
    RENEW_S,
    RIVAL_S,
    TERM_S,
    Tenure,
    Watch,
)
from hotplate.platform.store.records import Term

MINE = Term(epoch=3, holder="a", url="http://a", renewals=5, left_s=8.0, rival_s=1.0)


@pytest.mark.parametrize(
    ("term", "runs", "taken"),
    [
        (Term(), None, True),  # nobody has acted yet
        (replace(MINE, holder=""), True, True),  # it was given up
        (MINE, False, True),  # its process has ended
        (MINE, None, False),
        (MINE, True, False),
        (replace(MINE, left_s=0.0), None, True),  # it has ended long ago, elsewhere
        (replace(MINE, left_s=-3600.0), True, False),  # only the database's clock says so
    ],
)
def test_a_first_look_takes_what_nobody_can_have(
    term: Term, runs: bool | None, taken: bool
) -> None:
    assert Watch(term, 100.0).may_take(100.0, runs) == taken


def test_a_term_is_waited_out_on_the_own_clock_alone() -> None:
    watch = Watch(MINE, 100.0)
    for moved_s in (-3600.0, 3600.0):  # the database's clock is set, between two looks
        looked = watch.after(replace(MINE, left_s=moved_s), 109.9)
        assert not looked.may_take(109.9, None)
        assert looked.after(replace(MINE, left_s=moved_s), 110.0).may_take(110.0, None)


def test_a_renewal_begins_the_wait_anew() -> None:
    watch = Watch(MINE, 100.0).after(replace(MINE, renewals=6), 109.0)
    assert watch.renewed
    assert not watch.may_take(118.9, None)
    assert watch.may_take(119.0, None)


def test_one_that_acts_is_lost_when_its_term_may_be_over_and_another_waits() -> None:
    tenure = Tenure.begun(3, asked_at=50.0, rival_s=RIVAL_S)
    assert tenure.until == 50.0 + TERM_S
    assert tenure.rung(60.0) is None


def test_one_that_is_alone_acts_on_however_long_the_database_is_away() -> None:
    tenure = Tenure.begun(3, 50.0, RIVAL_S + 0.1).rung(60.0 + LATE_S)
    assert tenure is not None
    assert tenure.until == 60.0 + LATE_S + TERM_S


def test_one_that_was_stopped_is_lost_even_if_it_knows_of_no_other() -> None:
    assert Tenure.begun(3, 50.0, math.inf).rung(60.1 + LATE_S) is None


@dataclass
class Row:
    """The database's row, and its clock, which somebody sets."""

    term: Term = field(default_factory=Term)
    ends_at: float = 0.0
    off_s: float = 0.0

    def seen(self, now: float) -> Term:
        return replace(self.term, left_s=self.ends_at - now - self.off_s, rival_s=0.0)


@dataclass
class Plane:
    """A control plane that is stopped and goes on by chance; its clock has begun at any time."""

    name: str
    off_s: float
    stopped_until: float = 0.0
    watch: Watch | None = None
    tenure: Tenure | None = None

    def acts(self, now: float) -> bool:
        return self.tenure is not None and now + self.off_s < self.tenure.until

    def turn(self, row: Row, now: float) -> float:
        """What it does when it comes to it; how long until the next time."""
        mine = now + self.off_s
        if self.tenure is not None:
            if mine >= self.tenure.until or row.term.epoch != self.tenure.epoch:
                self.tenure = self.watch = None
                return LOOK_S
            row.term = replace(row.term, renewals=row.term.renewals + 1)
            row.ends_at = now + row.off_s + TERM_S
            self.tenure = Tenure.begun(self.tenure.epoch, mine, 0.0)
            return RENEW_S
        seen = row.seen(now)
        self.watch = Watch(seen, mine) if self.watch is None else self.watch.after(seen, mine)
        if self.watch.may_take(mine, None if self.watch.looks > 1 else True):
            row.term = Term(seen.epoch + 1, self.name)
            row.ends_at = now + row.off_s + TERM_S
            self.tenure = Tenure.begun(row.term.epoch, mine, 0.0)
            return RENEW_S
        return LOOK_S


@pytest.mark.parametrize("seed", range(20))
def test_never_do_two_act_at_once_whoever_stops_and_whatever_the_clocks_say(seed: int) -> None:
    """Two planes for ten minutes: each stops now and then, for up to a minute, and the database's
    clock is set by up to an hour."""
    rng = random.Random(seed)
    row = Row()
    planes = [Plane(name, rng.uniform(-1e6, 1e6)) for name in "ab"]
    turns = sorted((rng.random(), number) for number in range(2))
    while turns:
        now, number = heapq.heappop(turns)
        if now > 600:
            continue
        plane = planes[number]
        if now < plane.stopped_until:
            heapq.heappush(turns, (plane.stopped_until, number))
            continue
        pause_s = plane.turn(row, now)
        acting = [each.name for each in planes if each.acts(now)]
        assert len(acting) <= 1
        if rng.random() < 0.02:
            plane.stopped_until = now + rng.uniform(0, 60)
        if rng.random() < 0.02:
            row.off_s = rng.uniform(-3600, 3600)
        heapq.heappush(turns, (now + pause_s, number))
    assert row.term.epoch > 1


def test_the_other_acts_within_a_term_and_a_look_after_one_has_stopped() -> None:
    row, leader, other = Row(), Plane("a", 0.0), Plane("b", 5e5)
    leader.turn(row, 0.0)
    leader.turn(row, RENEW_S)  # and then no more
    now = 0.3
    while not other.acts(now):
        now += other.turn(row, now)
    assert not leader.acts(now)
    assert now - RENEW_S <= TERM_S + 2 * LOOK_S
