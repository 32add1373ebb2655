"""Floors by the clock, and a decider that says when one holds."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from hotplate.autoscaler.errors import ScalingInvalid
from hotplate.autoscaler.policy import Cause, Policy, Replicas
from hotplate.autoscaler.rules.schedule import Schedule
from tests.autoscaler.deciding import IDLE, asleep, decided

OFFICE = "0 8 * * mon-fri=2; 0 18 * * mon-fri=0"
BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, zone: ZoneInfo = BERLIN) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=zone)


def test_office_hours_hold_until_the_next_rule() -> None:
    office = Schedule(OFFICE, BERLIN)
    friday = office.floor(at("2026-01-16T08:00"))
    assert (friday.replicas, friday.rule) == (2, "0 8 * * mon-fri=2")
    assert friday.until == at("2026-01-16T18:00")
    assert office.floor(at("2026-01-16T07:59:59")).replicas == 0
    weekend = office.floor(at("2026-01-17T12:00"))
    assert (weekend.replicas, weekend.until) == (0, at("2026-01-19T08:00"))
    assert office.floor(datetime(2026, 7, 15, 6, 30, tzinfo=UTC)).replicas == 2
    assert office.floor(datetime(2026, 1, 15, 6, 30, tzinfo=UTC)).replicas == 0


def test_steps_lists_dates_and_rare_days_are_as_in_cron() -> None:
    quarter = Schedule("*/15 9-10,12 * * *=1", BERLIN).floor(at("2026-01-16T10:50"))
    assert quarter.until == at("2026-01-16T12:00")
    either = Schedule("0 0 1 * sun=3", BERLIN)
    assert either.floor(at("2026-01-02T12:00")).until == at("2026-01-04T00:00")
    assert Schedule("0 0 * * 7=3", BERLIN).floor(at("2026-01-02T12:00")).until == at(
        "2026-01-04T00:00"
    )
    leap = Schedule("0 0 29 feb *=1", BERLIN).floor(at("2026-01-02T12:00"))
    assert leap.until == at("2028-02-29T00:00")
    same = Schedule("0 8 * * *=2; 0 8 * * *=3", BERLIN)
    assert same.floor(at("2026-01-02T08:00")).replicas == 3


@pytest.mark.parametrize(
    "text", ["0 0 29 feb *=1", "0 0 31 feb-mar *=1", "0 0 31 2 mon=1", "0 0 28,31 2 *=1"]
)
def test_a_schedule_that_comes_in_some_year_is_taken(text: str) -> None:
    assert Schedule(text, BERLIN).floor(at("2026-01-02T12:00")).until is not None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "it has no rule"),
        ("0 8 * *=2", "is not five fields and a number"),
        ("0 8 * * mon=x", "'x' is not 0 to 1000 replicas"),
        ("60 8 * * *=1", "'60' in '60' is not 0 to 59"),
        ("0 8 * * fri-mon=1", "range 'fri-mon' ends before it begins"),
        ("*/0 8 * * *=1", "step '0' in '*/0' is not a whole number above 0"),
        ("0 8 * foo *=1", "'foo' in 'foo' is not 1 to 12"),
        ("0 0 31 2 *=1", "'0 0 31 2 *=1' never comes: no month that it names has 31 days"),
        ("0 8 * * *=2; 0 0 30 feb *=1", "'0 0 30 feb *=1' never comes"),
        ("0 0 31 feb,apr,jun,sep,nov *=1", "no month that it names has 31 days"),
    ],
)
def test_a_wrong_schedule_is_refused_with_the_word(text: str, complaint: str) -> None:
    with pytest.raises(ScalingInvalid) as refused:
        Schedule(text, BERLIN)
    assert complaint in str(refused.value)


def test_the_decider_holds_to_the_schedule_and_says_so() -> None:
    decider = asleep(Policy(min_replicas=0, max_replicas=3))
    decider.set_floor(2, "0 8 * * mon-fri=2", until=500.0)
    decision = decided(decider, IDLE, Replicas(), 10.0)
    assert (decision.desired, decision.cause) == (2, Cause.MINIMUM)
    assert decision.reason == "0 of 2: no demand for more, the schedule '0 8 * * mon-fri=2' says 2"
    assert decision.next_at == 500.0
    assert decision.kept == 0
    decider.set_floor(0, "0 18 * * mon-fri=0", until=900.0)
    later = decided(decider, IDLE, Replicas(2), 500.0)
    assert later.next_at is not None
    assert later.next_at <= 900.0
    assert decided(decider, IDLE, Replicas(2), 4500.0).desired == 0
