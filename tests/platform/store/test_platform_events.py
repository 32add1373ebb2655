"""The platform's own events in the database: so many of them, the newest first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from hotplate.platform.store import platform_events
from hotplate.platform.store.parts import Store

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_last_ones_come_newest_first_with_their_times(store: Store) -> None:
    for number in range(3):
        at = BEGAN + timedelta(seconds=number)
        store.platform_events.add("AgentLost", f"agent {number}", at)
    found = store.platform_events.last(2)
    assert [(event.message, event.at, event.kind, event.deployment) for event in found] == [
        ("agent 2", BEGAN + timedelta(seconds=2), "AgentLost", ""),
        ("agent 1", BEGAN + timedelta(seconds=1), "AgentLost", ""),
    ]
    assert store.platform_events.last(0) == []


def test_those_before_the_last_so_many_go(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert platform_events.KEPT == 10_000
    monkeypatch.setattr(platform_events, "KEPT", 5)
    for number in range(12):
        store.platform_events.add("AgentLost", str(number), BEGAN)
        kept = [int(event.message) for event in store.platform_events.last(100)]
        assert kept == list(range(number, max(-1, number - 5), -1))


def test_what_a_database_cannot_keep_is_no_fault(store: Store) -> None:
    store.platform_events.add("AgentLost", "a\x00b", BEGAN)
    (event,) = store.platform_events.last(1)
    assert event.message == "a?b"
