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


@pytest.mark.parametrize("source", [IN_A_TEST, AT_THE_END], ids=["in a test", "at the end"])
def test_a_process_that_hangs_says_where_and_ends(tmp_path: Path, source: str) -> None:
    (tmp_path / "test_one.py").write_text(source)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
    ]
    command += ["-o", "asyncio_mode=auto", "--timeout=0", "--rootdir", str(tmp_path)]
    done = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Timeout (0:00:00.100000)!" in done.stderr
    assert "most recent call first" in done.stderr
