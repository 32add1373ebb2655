"""Events of the platform, kept by the store: whoever adds one waits for nothing."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from hotplate.platform.store.parts import Store
from hotplate.platform.stored_events import StoredEvents
from tests.support.control_plane.quick_store import QuickStore


async def test_they_are_kept_in_their_order_with_the_times_at_which_they_were_added(
    store: Store,
) -> None:
    events = StoredEvents(store)
    began = datetime.now(UTC)
    for number in range(50):
        events.add("AgentLost", str(number))
    added = datetime.now(UTC)
    await events.finish()
    found = await events.last(100)
    assert [int(event.message) for event in found] == list(range(49, -1, -1))
    assert all(began - timedelta(seconds=0.001) <= event.at <= added for event in found), (
        "the database may be slow"
    )


async def test_another_control_plane_finds_them(store: Store, tmp_path: Path) -> None:
    first = StoredEvents(store)
    first.add("AgentLost", "the agent does not answer")
    await first.finish()
    again = QuickStore(tmp_path / "hotplate.db")
    assert [event.kind for event in await StoredEvents(again).last(10)] == ["AgentLost"]
    again.close()


@pytest.mark.sqlite
async def test_a_database_that_fails_costs_the_event_and_not_the_caller(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    events = StoredEvents(store)
    with store.database.session() as session:
        session.execute(text("DROP TABLE platform_events"))
    with caplog.at_level(logging.INFO):
        events.add("DiskShort", "the disk is full")
        await events.finish()
    assert "the disk is full" in caplog.text
    assert "the event is not stored: the database cannot be used now" in caplog.text
