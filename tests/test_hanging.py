"""What `conftest.py` promises of a test process that hangs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
IN_A_TEST = """
import asyncio, contextlib, tests.conftest

tests.conftest.HANGS_S = 0.1

async def test_hangs():
    while True:
        with contextlib.suppress(BaseException):
            await asyncio.sleep(3600)
"""
AT_THE_END = """
import threading, tests.conftest

tests.conftest.ENDS_S = 0.1

def test_leaves_a_thread():
    threading.Thread(target=threading.Event().wait).start()
"""
A_FILE_LONGER = """
import threading, pytest, tests.conftest

tests.conftest.ENDS_S = 0.1

def test_takes_longer():
    threading.Event().wait({})
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A test session of its own, with our `conftest.py`."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", *options]
    command += ["-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "--timeout=0"]
    command += ["--rootdir", str(folder), str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("source", [IN_A_TEST, AT_THE_END], ids=["in a test", "at the end"])
def test_a_process_that_hangs_says_where_and_ends(tmp_path: Path, source: str) -> None:
    (tmp_path / "test_one.py").write_text(source)
    done = run(tmp_path)
    assert done.returncode == 1
    assert "Timeout (0:00:00.100000)!" in done.stderr
    assert "most recent call first" in done.stderr


def test_a_process_that_has_run_its_tests_waits_for_the_others(tmp_path: Path) -> None:
    for name, takes_s in (("brief", 0), ("long", 0.5)):
        (tmp_path / f"test_{name}.py").write_text(A_FILE_LONGER.format(takes_s))
    done = run(tmp_path, "-n", "2", "--dist", "loadfile")
    assert done.returncode == 0
    assert "Timeout" not in done.stderr
