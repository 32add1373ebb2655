"""`hotplate why`."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta, timezone

import pytest
from rich.console import Console

from hotplate.platform.commands.why import moment_of, show_why
from hotplate.platform.errors import BadSetting

HERE = timezone(timedelta(hours=2))
NOW = datetime(2026, 1, 31, 16, 0, 0, tzinfo=HERE)


def decided(minute: int, service: str, replicas: int, desired: int) -> dict[str, object]:
    return {
        "at": datetime(2026, 1, 31, 13, minute, tzinfo=UTC).isoformat(),
        "revision": 1,
        "service": service,
        "replicas": replicas,
        "desired": desired,
        "demand": 7,
        "reason": f"because [{minute}]",
    }


def said(*decisions: dict[str, object]) -> list[str]:
    out = io.StringIO()
    show_why(Console(file=out, width=200), "chat", decisions, NOW)
    return out.getvalue().splitlines()


def test_the_decision_in_force_comes_first_and_what_led_to_it_after() -> None:
    found = said(decided(9, "Chat", 2, 3), decided(8, "Embed", 0, 1), decided(7, "Chat", 1, 2))
    assert found == [
        "chat, Chat (revision 1): 3 desired since 2026-01-31 15:09:00",
        "  because [9]",
        "  there were 2, with 7 in flight or queued",
        "    before, 2026-01-31 15:07:00: 1 → 2  because [7]",
        "chat, Embed (revision 1): 1 desired since 2026-01-31 15:08:00",
        "  because [8]",
        "  there were 0, with 7 in flight or queued",
    ]


def test_a_revision_that_was_replaced_is_not_shown_as_in_force() -> None:
    found = said(decided(9, "Chat", 0, 1) | {"revision": 2}, decided(8, "Chat", 3, 0))
    assert found[0] == "chat, Chat (revision 2): 1 desired since 2026-01-31 15:09:00"
    assert found[3:] == ["    before, 2026-01-31 15:08:00: 3 → 0  because [8]"]


def test_what_a_decision_was_made_from_is_said() -> None:
    inputs = {"in_flight": 1, "queued": 6, "service_s": 2.5, "ready": 1, "starting": 1}
    found = said(decided(9, "Chat", 2, 3) | {"inputs": inputs})
    assert found[2] == "  there were 2, with 1 in flight, 6 queued, 2.5 s each; 1 starting"


def test_ten_decisions_are_enough() -> None:
    assert len(said(*(decided(minute, "Chat", 1, 2) for minute in range(30)))) == 3 + 9


def test_that_nothing_is_kept_is_said() -> None:
    assert said() == ["no decision on chat is stored from before 2026-01-31 16:00:00"]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("14:05", datetime(2026, 1, 31, 14, 5, tzinfo=HERE)),
        ("14:05:30", datetime(2026, 1, 31, 14, 5, 30, tzinfo=HERE)),
        ("2026-01-30T14:05:30", datetime(2026, 1, 30, 14, 5, 30, tzinfo=HERE)),
        ("2026-01-30T14:05:30+00:00", datetime(2026, 1, 30, 14, 5, 30, tzinfo=UTC)),
    ],
)
def test_a_time_is_of_today_unless_it_has_a_day(text: str, moment: datetime) -> None:
    assert moment_of(text, NOW) == moment


@pytest.mark.parametrize("text", ["noon", "25:00", "2026-13-01T00:00", ""])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(BadSetting, match=f"--at {text} is not a time: write 14:05"):
        moment_of(text, NOW)
