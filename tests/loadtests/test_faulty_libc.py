"""The library by which storms make a clock wrong and a disk read-only or slow."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtests.systems.faulty_libc import FaultyLibc

PROGRAM = """
import json, sqlite3, sys, time
from datetime import UTC, datetime
database = sqlite3.connect(sys.argv[1] + "/store.db")
database.execute("PRAGMA journal_mode = WAL")
database.execute("CREATE TABLE kept (number)")
for line in sys.stdin:
    began = time.monotonic()
    try:
        with database:
            database.execute("INSERT INTO kept VALUES (1)")
        refused = ""
    except sqlite3.OperationalError as error:
        refused = str(error)
    lasted_s = time.monotonic() - began
    with open(sys.argv[2], "w") as elsewhere:
        elsewhere.write("as ever")
    walls = [time.time(), datetime.now(UTC).timestamp()]
    print(json.dumps({"refused": refused, "lasted_s": lasted_s, "walls": walls}), flush=True)
"""
Ask = Callable[[], dict[str, Any]]


@pytest.fixture
def libc(tmp_path: Path) -> Iterator[FaultyLibc]:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler (cc) on this machine")
    (tmp_path / "disk").mkdir()
    with FaultyLibc(tmp_path, tmp_path / "disk") as libc:
        yield libc


@pytest.fixture
def ask(libc: FaultyLibc, tmp_path: Path) -> Iterator[Ask]:
    """What a process finds that has loaded it and writes to a database on the disk."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "disk"), str(tmp_path / "elsewhere")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **libc.environ},
    )
    assert process.stdin is not None and process.stdout is not None

    def asked() -> dict[str, Any]:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        found: dict[str, Any] = json.loads(process.stdout.readline())
        return found

    try:
        yield asked
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@pytest.mark.parametrize("shift_s", [3600, -3600])
def test_the_wall_clock_alone_is_wrong(libc: FaultyLibc, ask: Ask, shift_s: int) -> None:
    right = ask()["walls"]
    with libc.fault(wall_s=shift_s):
        assert ask()["walls"] == pytest.approx([at + shift_s for at in right], abs=300)
    assert ask()["walls"] == pytest.approx(right, abs=300)


def test_a_database_on_the_disk_takes_no_writes_meanwhile(libc: FaultyLibc, ask: Ask) -> None:
    assert ask()["refused"] == ""
    with libc.fault(read_only=True):
        assert ask()["refused"] == "disk I/O error"
    assert ask()["refused"] == ""


def test_a_slow_disk_takes_its_time(libc: FaultyLibc, ask: Ask) -> None:
    with libc.fault(slow_s=0.3):
        assert ask()["lasted_s"] > 0.3
