"""Minimum replicas by the clock: `0 8 * * mon-fri=2; 0 18 * * mon-fri=0` in a time zone; pure.

Each rule is a cron expression (minute, hour, day of month, month, day of week) and the least number
of replicas from then on, until the time of another rule. Days are as in cron: where day of month
and day of week are both restricted, either is enough; Sunday is 0 and 7.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from hotplate.autoscaler.errors import ScalingInvalid

SEARCH_DAYS = 8 * 366
"""How many days a search for a rule's time covers: the next 29 February may be eight years away."""
MOST_REPLICAS = 1000

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
"""The number of days of each month, with 29 February."""
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


@dataclass(frozen=True)
class Floor:
    """The least number of replicas that a schedule sets at a moment."""

    replicas: int
    rule: str
    """The rule in force, as written; empty before the first rule's time."""
    until: datetime | None
    """When the next rule comes into force; None = never."""


@dataclass(frozen=True)
class _Rule:
    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    replicas: int

    def matches(self, day: datetime) -> bool:
        """Whether the rule has times on the day."""
        by_date, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        fits = by_date or by_weekday if self.either_day else by_date and by_weekday
        return fits and day.month in self.months

    def times(self, day: datetime) -> list[datetime]:
        if not self.matches(day):
            return []
        clock = ((hour, minute) for hour in self.hours for minute in self.minutes)
        return sorted(day.replace(hour=hour, minute=minute) for hour, minute in clock)


class Schedule:
    """The rules of one deployment. Raises ScalingInvalid, whose message begins with `path`."""

    def __init__(self, text: str, zone: tzinfo, path: str = "schedule") -> None:
        self._zone = zone
        rules = [part.strip() for part in text.split(";") if part.strip()]
        if not rules:
            raise ScalingInvalid(path, "it has no rule; write '0 8 * * mon-fri=2; 0 18 * * *=0'")
        self._rules = [_rule(rule, path) for rule in rules]

    def floor(self, now: datetime) -> Floor:
        """What the schedule sets at `now` (with a time zone). Of rules with the same time the last
        one wins."""
        here = now.astimezone(self._zone)
        past = next(self._moments(here, -1), None)
        coming = next(self._moments(here, 1), None)
        until = None if coming is None else coming[0]
        if past is None:
            return Floor(0, "", until)
        return Floor(past[1].replicas, past[1].text, until)

    def _moments(self, here: datetime, step: int) -> Iterator[tuple[datetime, _Rule]]:
        """Times and their rules, nearest first: in the past (`step` -1, up to now) or the future
        (1)."""
        midnight = here.replace(hour=0, minute=0, second=0, microsecond=0)
        for number in range(SEARCH_DAYS):
            day = midnight + timedelta(days=step * number)
            found = [(at, n) for n, rule in enumerate(self._rules) for at in rule.times(day)]
            for at, n in sorted(found, reverse=step < 0):
                if (at <= here) == (step < 0):
                    yield at, self._rules[n]


def _rule(text: str, path: str) -> _Rule:
    times, _, replicas = text.rpartition("=")
    fields = times.split()
    count = replicas.strip()
    if len(fields) != 5:
        raise ScalingInvalid(path, f"'{text}' is not five fields and a number, as in '0 8 * * *=2'")
    if not (count.isascii() and count.isdecimal() and int(count) <= MOST_REPLICAS):
        raise ScalingInvalid(path, f"'{text}': {count!r} is not 0 to {MOST_REPLICAS} replicas")
    minutes, hours, days, months, weekdays = (
        _field(field, low, high, names, f"'{text}'", path)
        for field, low, high, names in zip(
            fields, (0, 0, 1, 1, 0), (59, 23, 31, 12, 7), ((), (), (), _MONTHS, _DAYS), strict=True
        )
    )
    either = not fields[2].startswith("*") and not fields[4].startswith("*")
    weekdays = frozenset(day % 7 for day in weekdays)
    if not either and min(days) > max(_LONGEST[month - 1] for month in months):
        raise ScalingInvalid(
            path,
            f"'{text}' never comes: no month that it names has {min(days)} days; "
            "write another day of the month, or remove the rule",
        )
    return _Rule(text, minutes, hours, days, months, weekdays, either, int(count))


def _field(
    text: str, low: int, high: int, names: tuple[str, ...], rule: str, path: str
) -> frozenset[int]:
    """The values of one field: `*`, `5`, `1-5`, `*/15`, `mon-fri`, and lists of these."""

    def value(word: str) -> int:
        if word.lower() in names:
            return names.index(word.lower()) + low
        if not (word.isascii() and word.isdecimal() and low <= int(word) <= high):
            raise ScalingInvalid(path, f"{rule}: {word!r} in {text!r} is not {low} to {high}")
        return int(word)

    values: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        if slash and not (step.isascii() and step.isdecimal() and int(step) > 0):
            raise ScalingInvalid(
                path, f"{rule}: step {step!r} in {text!r} is not a whole number above 0"
            )
        first, dash, last = span.partition("-")
        start = low if span == "*" else value(first)
        end = high if span == "*" or (slash and not dash) else value(last) if dash else start
        if end < start:
            raise ScalingInvalid(path, f"{rule}: range {span!r} ends before it begins")
        values |= set(range(start, end + 1, int(step) if slash else 1))
    return frozenset(values)
