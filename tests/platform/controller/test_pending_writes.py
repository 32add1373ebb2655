from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from hotplate.platform.controller.pending_writes import PendingWrites
from hotplate.platform.errors import StoreFailed
from hotplate.platform.store.records import Kind
from tests.support.control_plane.quick_store import QuickStore
from tests.support.patience import PATIENCE_S, until
from tests.support.small_disk import MIB, fill, small_disk

LONG = "x" * 5000
"""The database's log has room for a few short rows even on a disk that is full."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path, 4 * MIB) as folder:
        yield folder


@pytest.mark.sqlite
async def test_what_happens_on_a_full_disk_is_written_in_order_when_there_is_room(
    disk: Path,
) -> None:
    store = QuickStore(disk / "hotplate.db")
    user = store.identities.ensure_user("acme", "ann", "ann@localhost")

    def add(name: str) -> None:
        store.artifacts.ensure_repository(user.organization.id, Kind.BENTO, name, LONG)

    pending = PendingWrites(store)
    filler = fill(disk)
    names = [f"n{number:02}" for number in range(20)]
    for name in names:
        pending.add(add, name)
    assert not await pending.flush()
    with pytest.raises(StoreFailed):
        add("now")
    assert len(pending) == len(names)
    filler.unlink()
    pending.add(add, "last")
    assert await pending.flush()
    assert len(pending) == 0
    for name in (*names, "last"):
        assert (
            store.artifacts.repository(user.organization.id, Kind.BENTO, name).description == LONG
        )
    store.close()


async def test_a_write_that_can_never_be_done_holds_up_no_other(disk: Path) -> None:
    store = QuickStore(disk / "hotplate.db")
    pending = PendingWrites(store)
    done: list[str] = []
    pending.add(int, "x")
    pending.add(done.append, "next")
    assert await pending.flush()
    assert done == ["next"]
    store.close()


async def test_all_of_a_round_is_one_transaction(tmp_path: Path) -> None:
    store = QuickStore(tmp_path / "hotplate.db")
    commits: list[object] = []
    count = commits.append
    event.listen(Engine, "commit", count)
    pending = PendingWrites(store)
    for number in range(20):
        pending.add(store.learnt.put, f"n{number}", number)
    assert await pending.flush()
    event.remove(Engine, "commit", count)
    assert [store.learnt.get(f"n{number}") for number in range(20)] == list(range(20))
    assert len(commits) == 1
    store.close()


async def test_what_was_being_written_when_somebody_stopped_waiting_is_written_once(
    tmp_path: Path,
) -> None:
    store = QuickStore(tmp_path / "hotplate.db")
    pending = PendingWrites(store)
    written: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        go_on.wait(PATIENCE_S)
        written.append("slow")

    pending.add(slow)
    flushing = asyncio.create_task(pending.flush())
    await asyncio.to_thread(begun.wait, PATIENCE_S)
    flushing.cancel()
    await asyncio.wait([flushing])
    pending.add(written.append, "next")
    again = asyncio.create_task(pending.flush())
    go_on.set()
    assert await again
    assert written == ["slow", "next"]
    store.close()


async def test_nobody_has_to_wait_and_what_comes_meanwhile_is_written_too(tmp_path: Path) -> None:
    store = QuickStore(tmp_path / "hotplate.db")
    pending = PendingWrites(store)
    written: list[str] = []
    failures: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        go_on.wait(PATIENCE_S)
        written.append("slow")

    def refused() -> None:
        raise StoreFailed("the disk is full")

    pending.add(slow)
    pending.flush_soon(lambda: failures.append("first"))
    await asyncio.to_thread(begun.wait, PATIENCE_S)
    pending.add(written.append, "next")
    pending.flush_soon(lambda: failures.append("second"))
    go_on.set()
    await until(lambda: written == ["slow", "next"])
    await until(lambda: not len(pending))
    pending.add(refused)
    pending.flush_soon(lambda: failures.append("third"))
    await until(lambda: failures == ["third"])
    assert len(pending) == 1
    store.close()
