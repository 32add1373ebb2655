"""Folders of replicas that have ended are removed when nothing starts, and not much later else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from hotplate.deploy.local import leavings
from hotplate.deploy.local.leavings import Leavings
from hotplate.deploy.local.records import Records
from tests.support.patience import until


class Situation:
    def __init__(self, folder: Path) -> None:
        self.starting = False
        self.folder = folder / "leavings"
        self.records = Records(folder)
        self.leavings = Leavings(self.records, lambda: self.starting)

    def leave(self, replica: str) -> None:
        self.records.create(replica)
        self.records.end(replica)
        self.leavings.add()

    @property
    def left(self) -> list[str]:
        return os.listdir(self.folder)


@pytest.fixture
async def situation(tmp_path: Path) -> AsyncIterator[Situation]:
    made = Situation(tmp_path)
    running = asyncio.create_task(made.leavings.run())
    yield made
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_they_stay_while_something_starts(situation: Situation) -> None:
    situation.leave("a")
    await until(lambda: not situation.left)
    situation.starting = True
    situation.leave("b")
    situation.leavings.look()
    await asyncio.sleep(0)
    assert situation.left == ["b"]
    situation.starting = False
    situation.leavings.look()
    await until(lambda: not situation.left)


async def test_they_do_not_wait_for_long(
    situation: Situation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leavings, "LATEST_S", 0.05)
    situation.starting = True
    situation.leave("a")
    await until(lambda: not situation.left)


async def test_all_can_be_removed_at_once(situation: Situation) -> None:
    situation.starting = True
    situation.leave("a")
    await situation.leavings.clear()
    assert situation.left == []


async def test_what_cannot_be_removed_now_is_removed_later(
    situation: Situation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(leavings, "LATEST_S", 0.05)
    situation.records.create("a")
    situation.records.end("a")
    away = situation.folder.rename(situation.folder.with_name("away"))
    situation.leavings.add()
    await until(lambda: "cannot be removed now" in caplog.text)
    away.rename(situation.folder)
    await until(lambda: not situation.left)
