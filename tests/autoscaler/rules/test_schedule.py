"""Floors by the clock, and a decider that says when one holds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from hotplate.autoscaler.errors import ScalingInvalid
from hotplate.autoscaler.policy import Cause, Policy, Replicas
from hotplate.autoscaler.rules.schedule import MOST_REPLICAS, Schedule
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


def times(rule: str, first: str, last: str) -> list[str]:
    """When the rule comes between two moments, each as `day hour:minute`."""
    schedule, now, found = Schedule(f"{rule}=1", BERLIN), at(first), list[str]()
    while (until := schedule.floor(now).until) is not None and until < at(last):
        found.append(f"{until.day} {until:%H:%M}")
        now = until
    return found


@pytest.mark.parametrize(
    ("minutes", "found"),
    [
        ("0", [0]),
        ("59", [59]),
        ("1,3", [1, 3]),
        ("10-12", [10, 11, 12]),
        ("*/20", [0, 20, 40]),
        ("5/20", [5, 25, 45]),
        ("5-44/20", [5, 25]),
        ("5-45/20,50", [5, 25, 45, 50]),
        ("*", list(range(60))),
    ],
)
def test_a_field_names_its_values(minutes: str, found: list[int]) -> None:
    expected = [f"2 09:{minute:02}" for minute in found]
    assert times(f"{minutes} 9 * * *", "2026-01-02T00:00", "2026-01-03T00:00") == expected


@pytest.mark.parametrize(
    ("days", "found"),
    [
        ("1,13 * *", "1 13"),
        ("* * fri", "2 9 16 23 30"),
        ("* * sat-7", "3 4 10 11 17 18 24 25 31"),
        ("13 * fri", "2 9 13 16 23 30"),  # either is enough
        ("*/15 * fri", "16"),  # days from the 1st on, by fifteen, that are Fridays
        ("16 * */5", "16"),
        ("* feb *", ""),
        ("30,31 jan,feb *", "30 31"),
    ],
)
def test_days_of_the_month_and_of_the_week_are_as_in_cron(days: str, found: str) -> None:
    moments = times(f"0 8 {days}", "2026-01-01T00:00", "2026-02-01T00:00")
    assert moments == [f"{day} 08:00" for day in found.split()]


def test_months_and_days_have_names() -> None:
    months = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "DEC"]
    for number, name in enumerate(months, start=1):
        until = Schedule(f"0 0 1 {name} *=1", BERLIN).floor(at("2025-12-31T12:00")).until
        assert until == at(f"2026-{number:02}-01T00:00")
    for number, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "SAT"]):
        until = Schedule(f"0 0 * * {name}=1", BERLIN).floor(at("2026-01-03T12:00")).until
        assert until == at("2026-01-04T00:00") + timedelta(days=number)


@pytest.mark.parametrize(
    ("field", "low", "high"), [(0, 0, 59), (1, 0, 23), (2, 1, 31), (3, 1, 12), (4, 0, 7)]
)
def test_each_field_has_its_range(field: int, low: int, high: int) -> None:
    for value in (low - 1, low, high, high + 1):
        fields = ["0", "0", "1", "1", "*"]
        fields[field] = str(value)
        rule = f"{' '.join(fields)}=1"
        if low <= value <= high:
            assert Schedule(rule, BERLIN).floor(at("2026-01-02T12:00")).until is not None
        else:
            with pytest.raises(ScalingInvalid):
                Schedule(rule, BERLIN)


def test_a_rule_asks_for_a_thousand_replicas_at_most() -> None:
    rule = f"0 0 * * *={MOST_REPLICAS}"
    assert Schedule(rule, BERLIN).floor(at("2026-01-02T12:00")).replicas == MOST_REPLICAS
    with pytest.raises(ScalingInvalid):
        Schedule(f"0 0 * * *={MOST_REPLICAS + 1}", BERLIN)


def test_what_comes_once_in_a_generation_sets_nothing_before_and_no_end_afterwards() -> None:
    """29 February on a Sunday: 2004, 2032, 2060."""
    rare = Schedule("0 0 29 feb */7=4", BERLIN)
    before, after = rare.floor(at("2026-01-02T12:00")), rare.floor(at("2033-01-02T12:00"))
    assert (before.replicas, before.rule) == (0, "")
    assert before.until == at("2032-02-29T00:00")
    assert (after.replicas, after.rule, after.until) == (4, "0 0 29 feb */7=4", None)


@pytest.mark.parametrize(
    "text",
    [
        "0 0 29 feb *=1",
        "0 0 31 feb-mar *=1",
        "0 0 31 2 mon=1",
        "0 0 28,31 2 *=1",
        *(f"0 0 30 {month} *=1" for month in ("apr", "jun", "sep", "nov")),
        *(f"0 0 31 {month} *=1" for month in (1, 3, 5, 7, 8, 10, 12)),
    ],
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
        *((f"0 0 31 {month} *=1", "never comes") for month in ("apr", "jun", "sep", "nov")),
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
