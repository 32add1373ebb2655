"""Where gateways meet: it is found whoever else comes and goes at the same time."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hotplate.serving.gateway.fleet import Fleet
from hotplate.serving.gateway.meeting import lead, meeting


@pytest.fixture
def top(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as short:  # a socket's name has 107 bytes at most
        monkeypatch.setattr(tempfile, "tempdir", short)
        top = Path(short) / f"hotplate-gateways-{os.geteuid()}"
        top.mkdir()
        yield top


@contextmanager
def again_and_again(work: Callable[[], object]) -> Iterator[list[int]]:
    """Has a thread do it for the time of the block; how often it has."""
    done, turns = threading.Event(), [0]

    def go_on() -> None:
        while not done.is_set():
            work()
            turns[0] += 1

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield turns
    finally:
        done.set()
        thread.join()


def test_who_comes_while_others_leave_finds_its_folder(top: Path) -> None:
    def come_and_leave() -> None:
        for number in range(20):
            (top / str(number)).mkdir()
        for number in range(20):
            (top / str(number)).rmdir()

    with again_and_again(come_and_leave) as turns:
        for _ in range(60):
            with meeting(["mine"]) as folder:
                assert folder.is_dir()
    assert turns[0] > 0


def test_who_comes_while_another_reads_its_routes_again_finds_that_one(top: Path) -> None:
    with meeting(["ours"]) as folder:
        other = Fleet(folder, 1.0)
        other.join()
    with again_and_again(lambda: lead(folder, ["ours", "more"])) as turns:
        for _ in range(60):
            with meeting(["ours"]) as found:
                assert found == folder
    other.leave()
    assert turns[0] > 0
