"""Where gateways meet: it is found whoever else comes and goes at the same time."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotplate.serving.gateway.meeting import meeting


@pytest.fixture
def top(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as short:  # a socket's name has 107 bytes at most
        monkeypatch.setattr(tempfile, "tempdir", short)
        top = Path(short) / f"hotplate-gateways-{os.geteuid()}"
        top.mkdir()
        yield top


def test_who_comes_while_others_leave_finds_its_folder(top: Path) -> None:
    done = threading.Event()
    left = 0

    def leave_again_and_again() -> None:
        nonlocal left
        while not done.is_set():
            for number in range(20):
                (top / str(number)).mkdir()
            for number in range(20):
                (top / str(number)).rmdir()
                left += 1

    leaving = threading.Thread(target=leave_again_and_again)
    leaving.start()
    try:
        for _ in range(60):
            with meeting(["mine"]) as folder:
                assert folder.is_dir()
    finally:
        done.set()
        leaving.join()
    assert left > 0
