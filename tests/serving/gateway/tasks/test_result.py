"""A task's answer on the disk."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from hotplate.serving.gateway.errors import ReplicaFailed
from hotplate.serving.gateway.tasks.result import TaskResult
from tests.support.patience import PATIENCE_S


async def test_an_answer_whose_keeping_was_interrupted_is_kept_once_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, go_on = threading.Event(), threading.Event()
    fsync = os.fsync

    def slow_disk(descriptor: int) -> None:
        writing.set()
        assert go_on.wait(PATIENCE_S)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow_disk)
    result = TaskResult.of_error(tmp_path, "t1", "g1", ReplicaFailed("the replica is gone"))
    (frame,) = [piece async for piece in result.pieces()]
    interrupted = asyncio.create_task(result.store())
    assert await asyncio.to_thread(writing.wait, 8)
    interrupted.cancel()
    again = asyncio.create_task(result.store())
    await asyncio.sleep(0)
    go_on.set()
    await again
    (name,) = os.listdir(tmp_path)
    kept = TaskResult.load(tmp_path / name)
    assert b"".join([piece async for piece in kept.pieces()]) == frame
