"""Processes that outlive us: known by pid and start time, their death seen through a pidfd.

Each leads a session of its own, so a signal to our terminal does not reach it and everything it
has started can be found and ended with it. Linux 5.3 or newer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from hotplate.deploy.errors import SpawnFailed
from hotplate.deploy.process.procfs import (
    is_first,
    is_running,
    marked,
    numbers_of,
    runs,
    session_members,
    stat_of,
)
from hotplate.deploy.process.readable import until_readable

_SWEEP_PAUSE_S = 0.005
"""First pause while killed processes vanish from /proc; nothing tells us when they have."""


class ProcessMembers(Protocol):
    """Processes that end with a leader although they may be outside its session."""

    def members(self) -> Collection[int]:
        """Their process ids now; zombies may be among them."""

    def seal(self) -> None:
        """Keep new ones from coming into being, if that is possible."""


class _NoMembers:
    def members(self) -> Collection[int]:
        return ()

    def seal(self) -> None:
        pass


class Process:
    """A process that we started, or that an earlier self started and we adopted.

    Made within a running event loop, which sees its death at once. A child is always reaped.
    """

    def __init__(
        self,
        pid: int,
        start_time: str,
        pidfd: int,
        others: ProcessMembers | None = None,
        beside: Collection[int] = (),
        told: Callable[[], Awaitable[int | None]] | None = None,
    ) -> None:
        """`others` names processes outside its session that end with it, and so do those `beside`
        it. `told` is asked for the exit code of what is not our child."""
        self.pid = pid
        self.start_time = start_time
        """Ticks since boot and the boot's id: with `pid`, never the same for two processes."""
        self._pidfd = pidfd
        self._told = told
        self.others = others or _NoMembers()
        self.beside = {pid: stat_of(pid).start_time for pid in beside}
        """By their process ids, when they started."""
        self._depth = len(numbers_of(pid))
        """In how many namespaces of processes it is, one below the other."""
        self._ends_at_once = False
        """Whether the first process of its namespace is known, with which its session ends."""
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int | None] = self._loop.create_future()
        self._burial: asyncio.Task[None] | None = None
        self._loop.add_reader(pidfd, self._on_death)

    @classmethod
    def spawn(
        cls,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str | Path,
        log_path: str | Path,
        stdin_json: Any = None,
        pass_fds: Collection[int] = (),
        others: ProcessMembers | None = None,
    ) -> Process:
        """Start `argv` with exactly `env`, output appended to `log_path`.

        `stdin_json` is one JSON document on its standard input; without it the input is empty.
        Descriptors in `pass_fds` keep their numbers. Raises `SpawnFailed`.
        """
        return cls.of_child(launch(argv, env, cwd, log_path, stdin_json, pass_fds), others)

    @classmethod
    def of_child(
        cls, pid: int, others: ProcessMembers | None = None, beside: Collection[int] = ()
    ) -> Process:
        """A child that nobody has reaped."""
        return cls(pid, stat_of(pid).start_time, os.pidfd_open(pid), others, beside)

    @classmethod
    def of_fork(
        cls,
        pid: int,
        others: ProcessMembers,
        *,
        beside: Collection[int],
        told: Callable[[], Awaitable[int | None]],
    ) -> Process:
        """What another process of ours has forked. Raises OSError where it has ended."""
        return cls(pid, stat_of(pid).start_time, os.pidfd_open(pid), others, beside, told)

    @classmethod
    def adopt(
        cls, pid: int, start_time: str, others: ProcessMembers | None = None
    ) -> Process | None:
        """The process with this pid and start time; None if it has ended."""
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            return None
        try:
            stat = stat_of(pid)
            if stat.start_time == start_time and not stat.dead:
                return cls(pid, start_time, pidfd, others)
            if stat.dead:
                _reap(pid)
        except ProcessLookupError:
            pass
        os.close(pidfd)
        return None

    @classmethod
    def find(cls, variable: str, values: Collection[str]) -> list[Process]:
        """Processes that were started with an environment where `variable` is one of `values`.

        Finds what no record names: started just before we were killed, or left by a dead leader.
        """
        found = []
        for pid in marked(variable, values):
            with contextlib.suppress(ProcessLookupError):
                if process := cls.adopt(pid, stat_of(pid).start_time):
                    found.append(process)
        return found

    def command(self) -> list[str]:
        """The program and its arguments; none when it has died."""
        try:
            words = Path(f"/proc/{self.pid}/cmdline").read_bytes()
        except FileNotFoundError:
            return []
        return [os.fsdecode(word) for word in words.split(b"\0")[:-1]]

    @property
    def alive(self) -> bool:
        """Whether its death has not been seen yet."""
        return self._burial is None

    async def wait(self) -> int | None:
        """Return once it, its whole session and `others` are gone.

        The exit code, negative for a signal; None if it was not our child.
        """
        return await asyncio.shield(self._ended)

    def send_signal(self, number: signal.Signals) -> None:
        """Signal the leader, if it still lives."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def set_oom_score(self, score: int) -> None:
        """How soon the kernel ends it when memory is short. Raises OSError."""
        Path(f"/proc/{self.pid}/oom_score_adj").write_text(str(score))

    async def terminate(self, grace_s: float) -> int | None:
        """SIGTERM to the leader, after `grace_s` SIGKILL; its session's other processes go with it.

        Returns like `wait`.
        """
        self.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_s):
                return await self.wait()
        except TimeoutError:
            self.send_signal(signal.SIGKILL)
            return await self.wait()

    def leave(self) -> None:
        """Stop watching; it goes on running. Nothing else may be asked of it afterwards."""
        if self.alive:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._ended.cancel()

    def _on_death(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self._burial = asyncio.create_task(self._bury())

    async def _bury(self) -> None:
        try:
            self.others.seal()
            await end_all(self._rest)
        finally:
            # Not before, because until then nobody else can get this pid or session id.
            code = _reap(self.pid)
        if code is None and self._told is not None:
            code = await self._told()
        try:
            # What is first in a namespace ends when all others of it have been reaped.
            await end_all(self._beside)
        finally:
            for child in self.beside:
                _reap(child)
            os.close(self._pidfd)
            if not self._ended.done():
                self._ended.set_result(code)

    def _rest(self) -> set[int]:
        """All but the leader that end with it, without those that can do so only after it."""
        found = set(self.others.members())
        self._ends_at_once |= any(map(self._is_first_here, found.union(self.beside)))
        if not self._ends_at_once:  # its session may be anywhere: a look at all that there is
            found.update(session_members(self.pid))
        for pid in filter(is_first, found.difference(self.beside)):
            with contextlib.suppress(ProcessLookupError):
                self.beside[pid] = stat_of(pid).start_time
        for pid in self._beside():  # all of the namespace goes with it, at once
            _kill(pid)
        return found.difference(self.beside)

    def _is_first_here(self, pid: int) -> bool:
        """Whether it is the first process of its namespace, which is below ours."""
        return is_first(pid) and len(numbers_of(pid)) == self._depth

    def _beside(self) -> list[int]:
        return [pid for pid, start_time in self.beside.items() if is_running(pid, start_time)]


def launch(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str | Path,
    log_path: str | Path,
    stdin_json: Any = None,
    pass_fds: Collection[int] = (),
) -> int:
    """A new child with these, as `Process.spawn` takes them: its process id."""
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    stdin = os.open(os.devnull, os.O_RDONLY) if stdin_json is None else document(stdin_json)
    try:
        child = subprocess.Popen(
            argv,
            env=dict(env),
            cwd=cwd,
            stdin=stdin,
            stdout=log,
            stderr=log,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )
    except OSError as error:
        raise SpawnFailed(
            f"{argv[0]} cannot be started in {cwd}: {error.strerror or error}."
        ) from error
    finally:
        os.close(log)
        os.close(stdin)
    child.returncode = 0  # we reap it ourselves: Popen must not wait for it when collected
    return child.pid


async def until_reaped(child: int) -> None:
    """Returns when that child of ours, which is about to end, has left nothing."""
    pidfd = os.pidfd_open(child)
    try:
        await until_readable(pidfd)
    finally:
        os.close(pidfd)
    _reap(child)


def _reap(pid: int) -> int | None:
    """The exit code of a child that has died; None if it is not our child."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return None


def document(content: Any) -> int:
    """A descriptor to read `content` from as JSON; memory, so that no write waits for a reader."""
    fd = os.memfd_create("document")
    with open(fd, "wb", closefd=False) as file:
        file.write(json.dumps(content).encode())
        file.seek(0)
    return fd


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


async def end_all(members: Callable[[], Collection[int]]) -> None:
    """SIGKILL what `members` names, again and again until nothing of it runs."""
    pause_s = _SWEEP_PAUSE_S
    killed: set[int] = set()
    while rest := {pid for pid in members() if runs(pid)}:
        for pid in rest:
            _kill(pid)
        await asyncio.sleep(pause_s)
        # Those that are new have been forked meanwhile: no time to lose.
        pause_s = _SWEEP_PAUSE_S if rest - killed else min(2 * pause_s, 1.0)
        killed |= rest
