"""Who copies from a blob store, or puts files there, and who removes: never both at once."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.store.holds import HOLD, REMOVAL
from tests.support.cache import stores
from tests.support.patience import PATIENCE_S

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture(params=["file", "s3"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> object:
    with stores.store(request.param, tmp_path) as made:
        yield made


def test_nobody_removes_while_somebody_holds(blobs: BlobStore) -> None:
    with blobs.hold(), blobs.removal() as may:
        assert not may
    with blobs.removal() as may:
        assert may


def test_whoever_comes_while_somebody_removes_waits_for_the_end(blobs: BlobStore) -> None:
    entered = threading.Event()

    def hold() -> None:
        with blobs.hold():
            entered.set()

    with ThreadPoolExecutor(1) as thread:
        with blobs.removal() as may:
            assert may
            done = thread.submit(hold)
            assert not entered.wait(0.3)
        done.result(PATIENCE_S)


def test_one_that_was_killed_is_over_by_itself_whatever_the_clocks_say(blobs: BlobStore) -> None:
    """A machine whose clock is hours behind wrote it: what counts is the storage's."""
    at = blobs.holds.keep("killed", datetime(1999, 1, 1, tzinfo=UTC))
    assert blobs.holds.held(at)
    assert blobs.holds.held(at + HOLD.total_seconds() - 1)
    assert not blobs.holds.held(at + HOLD.total_seconds() + 1)
    at = blobs.holds.announce("killed", datetime(1999, 1, 1, tzinfo=UTC))
    assert blobs.holds.removing(at)
    assert not blobs.holds.removing(at + REMOVAL.total_seconds() + 1)


def test_of_many_that_come_at_once_none_is_removed_under(tmp_path: Path) -> None:
    blobs = BlobStore(f"file://{tmp_path}/store")
    inside, lock, held, removed = 0, threading.Lock(), [0], [0]

    def holds(seed: int) -> None:
        nonlocal inside
        pause, rng = threading.Event(), random.Random(seed)
        for _ in range(8):
            with blobs.hold():
                with lock:
                    inside += 1
                pause.wait(rng.random() / 200)
                with lock:
                    inside -= 1
                    held[0] += 1
            pause.wait(rng.random() / 100)

    def removes() -> None:
        pause = threading.Event()
        while held[0] < 24 or not removed[0]:
            with blobs.removal() as may:
                if may:
                    for _ in range(3):
                        assert inside == 0
                        pause.wait(0.001)
                    removed[0] += 1

    with ThreadPoolExecutor(4) as threads:
        for done in [*(threads.submit(holds, seed) for seed in range(3)), threads.submit(removes)]:
            done.result(PATIENCE_S)
    assert removed[0] > 0
