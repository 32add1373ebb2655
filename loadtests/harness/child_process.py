"""A process that a benchmark starts, measured and stopped together with all that it starts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.memory import memory_bytes

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("platform", "serving", "cache", "autoscaler", "deploy", "machine")
"""Folders with parts of `hotplate`."""
BIN = Path(sys.executable).parent
START_S = 30.0
"""How long a process may take until it says that it is ready."""
END_S = 2.0
"""How long a killed process may take to end; one that hangs in a driver may never end."""
_LOOK_S = 0.01
_IDLE_S, _IDLE_SHARE = 0.3, 0.15
"""A process is idle if it uses less than this share of a core for so long; agents that gossip use a
little."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class BenchmarkFailed(Exception):
    """A benchmark cannot be run or measured; the message says why."""


@dataclass(frozen=True)
class _Stat:
    """What /proc/<pid>/stat says."""

    pid: int
    parent: int
    started: int
    """Clock ticks since boot: with `pid`, never the same for two processes."""
    cpu_s: float
    """User and system time, its own and that of the children it has waited for."""


class Child:
    """A running process. `running` makes one and stops it."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    def cpu_s(self) -> float:
        """CPU seconds (user and system) that it and its descendants have used so far."""
        return sum(stat.cpu_s for stat in _tree(self._process.pid))

    async def until_idle(self) -> None:
        """Returns once it has used hardly any CPU for a while."""
        used_s, now_s = -1.0, self.cpu_s()
        while now_s - used_s > _IDLE_SHARE * _IDLE_S:
            await asyncio.sleep(_IDLE_S)
            used_s, now_s = now_s, self.cpu_s()

    async def next_json(self, timeout_s: float = START_S) -> Any:
        """The next line of its output, which is JSON; it must have been started with `piped`.

        Raises BenchmarkFailed with the end of its log.
        """
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise BenchmarkFailed(f"nothing came in {timeout_s:g} s; {self.log_tail}") from None
        if not line:
            raise BenchmarkFailed(f"a process ended too early: {self.log_tail}")
        return json.loads(line)

    def write_line(self, line: str) -> None:
        """Write a line to its input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    def kill(self) -> None:
        """SIGKILL, to it alone."""
        self._process.kill()

    def pin(self, core: int) -> None:
        """Keep it, and what it has started, on one core."""
        for stat in _tree(self._process.pid):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                for thread in os.listdir(f"/proc/{stat.pid}/task"):
                    os.sched_setaffinity(int(thread), {core})

    def memory_bytes(self) -> int:
        """Memory of it and of what it has started; what is shared counts in part (Pss)."""
        found = 0
        for stat in _tree(self._process.pid):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                found += memory_bytes(stat.pid)
        return found

    async def wait(self) -> int:
        """Waits for its end, and returns its exit status."""
        return await self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    @property
    def log_text(self) -> str:
        """What it wrote to its log."""
        return self._log.read_text(errors="replace")

    @property
    def log_tail(self) -> str:
        """The end of its log, in one line."""
        lines = self.log_text.splitlines()
        return " | ".join(map(str.strip, lines[-5:])) or f"{self._log.name} is empty"

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL to all that is left of it after `grace_s`, or when cancelled."""
        family = _tree(self._process.pid)
        # Not by Process.terminate: it may wait for a child that asyncio itself waits for.
        for leader in family[:1]:
            _signal(leader, signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_s):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            for stat in family:
                _signal(stat, signal.SIGKILL)


@asynccontextmanager
async def running(
    *argv: str | Path,
    log: Path,
    environ: Mapping[str, str] | None = None,
    folder: Path = ROOT,
    piped: bool = False,
    grace_s: float = 5.0,
) -> AsyncIterator[Child]:
    """A process that runs until the block ends. Its messages go to `log`.

    With `piped` its standard output is for `next_json`; otherwise it goes to `log` too.
    """
    with log.open("wb") as messages:
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=folder,
            env=clean_environ() if environ is None else environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE if piped else messages,
            stderr=messages,
            start_new_session=True,  # so that Ctrl-C reaches only us, who stop it in order
        )
    child = Child(process, log)
    try:
        yield child
    finally:
        await child.stop(grace_s)


async def output_of(
    *argv: str | Path,
    log: Path,
    timeout_s: float,
    environ: Mapping[str, str] | None = None,
    folder: Path = ROOT,
) -> str:
    """What a command prints, its messages included. Raises BenchmarkFailed if it fails."""
    async with running(*argv, log=log, environ=environ, folder=folder) as child:
        try:
            async with asyncio.timeout(timeout_s):
                status = await child.wait()
        except TimeoutError:
            raise BenchmarkFailed(f"{argv[0]} did not end in {timeout_s:g} s") from None
        if status != 0:
            raise BenchmarkFailed(f"{' '.join(map(str, argv))}: {child.log_tail}")
    return child.log_text


def module(name: str, *arguments: object) -> list[str]:
    """The command line of one of our own programs."""
    return [sys.executable, "-m", name, *map(str, arguments)]


def clean_environ() -> dict[str, str]:
    """Our environment without the variables that a user's process would not have."""
    ours = ("BENTO", "HOTPLATE_", "PYTHON")
    return {key: value for key, value in os.environ.items() if not key.startswith(ours)}


def checkout_environ() -> dict[str, str]:
    """The same, with the path on which this checkout's modules are found, installed or not."""
    path = [ROOT, *(ROOT / name for name in SOURCES), os.environ.get("PYTHONPATH", "")]
    return clean_environ() | {"PYTHONPATH": os.pathsep.join(filter(None, map(str, path)))}


async def end_children() -> None:
    """Sends SIGKILL to all that this process has started or adopted, and reaps them.

    asyncio may wait for none of them. A process that the kernel cannot end within `END_S` is left.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(END_S):
            while family := _tree(os.getpid())[1:]:
                for stat in family:
                    _signal(stat, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(-1, os.WNOHANG)  # noqa: ASYNC222  (does not block)
                await asyncio.sleep(_LOOK_S)


def _tree(pid: int) -> list[_Stat]:
    """The process and all its descendants."""
    stats = {stat.pid: stat for entry in os.listdir("/proc") if (stat := _stat(entry))}
    children: dict[int, list[_Stat]] = {}
    for stat in stats.values():
        children.setdefault(stat.parent, []).append(stat)
    found = [stats[pid]] if pid in stats else []
    for stat in found:
        found += children.get(stat.pid, [])
    return found


def _stat(pid: str) -> _Stat | None:
    """None for what is no process, or has ended."""
    try:
        text = Path("/proc", pid, "stat").read_text() if pid.isdigit() else ""
    except OSError:
        return None
    if not text:
        return None
    fields = text.rpartition(")")[2].split()  # numbered from 3 on in proc(5)
    ticks = sum(map(int, fields[11:15]))
    return _Stat(int(pid), int(fields[1]), int(fields[19]), ticks / _TICKS_PER_S)


def _signal(stat: _Stat, number: signal.Signals) -> None:
    """Does nothing if that process has ended."""
    now = _stat(str(stat.pid))
    if now is not None and now.started == stat.started:
        with suppress(ProcessLookupError):
            os.kill(stat.pid, number)
