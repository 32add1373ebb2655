"""Real processes: started, adopted, waited for, ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from hotplate.deploy.errors import SpawnFailed
from hotplate.deploy.process.detached import Process
from tests.support.deploy.running import runs, zombies
from tests.support.patience import PATIENCE_S


def spawn(tmp_path: Path, code: str, **options: Any) -> Process:
    argv = [sys.executable, "-I", "-S", "-c", code]
    return Process.spawn(argv, {"FOLDER": str(tmp_path)}, tmp_path, tmp_path / "log", **options)


FOREVER = "import signal; signal.pause()"


def start_time(pid: int) -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19] + f"@{boot}"


async def orphan(tmp_path: Path) -> int:
    """The pid of a process that is not our child: its parent leaves when it is up."""
    code = (
        "import os, signal\n"
        "reader, writer = os.pipe()\n"
        "if os.fork(): os.read(reader, 1); os._exit(0)\n"
        "os.setsid(); print(os.getpid(), flush=True); os.write(writer, b'1'); signal.pause()\n"
    )
    await spawn(tmp_path, code).wait()
    return int((tmp_path / "log").read_text())


async def test_input_environment_folder_and_output_are_as_told(tmp_path: Path) -> None:
    big = "x" * 300_000  # more than a pipe holds: starting must not wait for the reader
    code = (
        "import sys, os, json; job = json.load(sys.stdin);"
        "print(len(job['big']), os.getcwd(), flush=True);"
        "print(sorted(k for k in os.environ if k != 'LC_CTYPE'), os.getsid(0) == os.getpid(),"
        "file=sys.stderr); sys.exit(7)"
    )
    process = spawn(tmp_path, code, stdin_json={"big": big})
    assert process.alive
    assert await process.wait() == 7
    assert not process.alive
    assert (tmp_path / "log").read_text().splitlines() == [f"300000 {tmp_path}", "['FOLDER'] True"]


async def test_a_descriptor_is_passed_under_its_number(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    try:
        code = f"import os; os.write({writer}, b'hello')"
        assert await spawn(tmp_path, code, pass_fds=[writer]).wait() == 0
        assert os.read(reader, 10) == b"hello"
    finally:
        os.close(reader)
        os.close(writer)


async def test_without_a_document_the_input_is_empty(tmp_path: Path) -> None:
    assert await spawn(tmp_path, "import sys; sys.exit(len(sys.stdin.read()))").wait() == 0


async def test_a_signal_is_a_negative_code(tmp_path: Path) -> None:
    process = spawn(tmp_path, FOREVER)
    os.kill(process.pid, signal.SIGKILL)
    assert await process.wait() == -9
    assert await process.terminate(1) == -9, "again changes nothing"
    process.send_signal(signal.SIGTERM)
    assert not zombies()


async def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(SpawnFailed, match="/no/program cannot be started"):
        Process.spawn(["/no/program"], {}, tmp_path, tmp_path / "log", {"a": 1})
    assert len(os.listdir("/proc/self/fd")) == len(before)


async def test_what_a_dead_leader_left_behind_is_ended(tmp_path: Path) -> None:
    code = (
        "import os, signal\n"
        "child = os.fork()\n"
        "if child: print(child, flush=True); os._exit(0)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "while True: signal.pause()\n"
    )
    assert await spawn(tmp_path, code).wait() == 0
    assert not runs(int((tmp_path / "log").read_text()))


async def test_an_adopted_process_is_watched(tmp_path: Path) -> None:
    pid = await orphan(tmp_path)
    born = start_time(pid)
    assert Process.adopt(pid, "1" + born) is None, "another process had this pid"
    adopted = Process.adopt(pid, born)
    assert adopted is not None
    waiting = asyncio.create_task(adopted.wait())
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(PATIENCE_S):
        assert await waiting is None
    assert Process.adopt(pid, born) is None


async def test_a_lost_process_is_found_by_its_environment(tmp_path: Path) -> None:
    pid = await orphan(tmp_path)
    (found,) = Process.find("FOLDER", ["/elsewhere", str(tmp_path)])
    assert found.pid == pid
    await found.terminate(5)
    assert Process.find("FOLDER", [str(tmp_path)]) == []


async def test_one_that_is_left_can_be_adopted(tmp_path: Path) -> None:
    first = spawn(tmp_path, FOREVER)
    first.leave()
    again = Process.adopt(first.pid, json.loads(json.dumps(first.start_time)))
    assert again is not None
    assert await again.terminate(5) == -15
