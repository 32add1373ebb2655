"""A program that forks others, and what it has forked: each within walls of its own, below its own.

The first process of the program's namespace outlives the program, for as long as there is anything
that it has forked, and tells what each has ended with: their parent is not we.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hotplate.deploy.process.detached import until_reaped
from hotplate.deploy.process.procfs import numbers_of
from hotplate.deploy.sandbox.ids import REPLICAS
from hotplate.deploy.sandbox.launch import WallMaker
from hotplate.deploy.sandbox.launcher.instructions import FAMILY, Line

TOLD_S = 1.0
"""Until the exit code of what has ended is told, which is at once."""
_LINES_BYTES = 1 << 16
_KINDS = ("user", "pid", "ipc", "mnt")
_LAST = ("-1000", "0")
"""As OOM scores: the process is never killed for want of memory, not even with all of its group,
which only a root with all capabilities may say; or after all replicas."""


@dataclass(frozen=True)
class NestedNamespaces:
    """What one fork enters: descriptors, for the program to have. `close` them here."""

    namespaces: tuple[int, ...]
    """Of users, processes, IPC and mounts."""
    plan: int
    """The instructions for what the fork does itself."""
    first: int
    """The process id of the first process there, with which all of it ends."""
    first_itself: int
    """The same as a descriptor, which is never another process."""

    def hold(self, pid: int) -> bool:
        """Whether that process has entered all of them. Raises OSError where it has ended."""
        its = (os.stat(f"/proc/{pid}/ns/{kind}") for kind in _KINDS)
        return all(map(os.path.samestat, its, map(os.fstat, self.namespaces)))

    def found_in(self, pids: Iterable[int]) -> list[int]:
        """Those of these processes that are among those in there."""
        inside = os.fstat(self.namespaces[_KINDS.index("pid")])
        found = []
        for pid in pids:
            with suppress(OSError):  # it has ended
                if os.path.samestat(os.stat(f"/proc/{pid}/ns/pid"), inside):
                    found.append(pid)
        return found

    def end(self) -> None:
        """Kill all that is in there, and all that comes."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.first_itself, signal.SIGKILL)

    def close(self) -> None:
        for each in (*self.namespaces, self.plan, self.first_itself):
            os.close(each)


class Family:
    """Made before its program, which `Isolation.spawn` starts with it; `retire` it in the end."""

    def __init__(self) -> None:
        self._channel, self._inherited = socket.socketpair()
        self._channel.setblocking(False)
        self._received = b""
        self._codes: dict[int, asyncio.Future[int | None]] = {}
        self._burial: asyncio.Task[None] | None = None
        self.users = self.processes = -1
        """Its namespaces, as descriptors."""
        self.first = 0
        """The first process of its namespace; 0 = it has not begun."""
        self._walls: WallMaker | None = None

    @property
    def descriptors(self) -> list[int]:
        """What the launcher has to inherit."""
        return [self._inherited.fileno()]

    @property
    def line(self) -> Line:
        """What the launcher is told."""
        return (FAMILY, " ".join(map(str, REPLICAS)), str(self._inherited.fileno()))

    def begin(self, program: int, first: int) -> None:
        """These are its program and the first process of its namespace, children of ours. Raises
        OSError."""
        self._inherited.close()
        self.first = first
        for score in _LAST:  # with it all that was forked would end
            with suppress(PermissionError):
                Path(f"/proc/{first}/oom_score_adj").write_text(score)
                break
        self.users = os.open(f"/proc/{program}/ns/user", os.O_RDONLY)
        self.processes = os.open(f"/proc/{first}/ns/pid", os.O_RDONLY)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._channel, self._hear)
        self._burial = loop.create_task(until_reaped(first))

    def put_up(
        self, fields: Sequence[str], told: Sequence[int], log: str | Path, to: socket.socket
    ) -> None:
        """Have walls put up for what is forked next, as `launcher.wall_maker` is told: `told` are
        its instructions and its report. Their namespaces are sent `to` there. Raises `SpawnFailed`
        and OSError."""
        if self._walls is not None and not self._walls.takes_orders:
            self.give_walls_up()
        if self._walls is None:
            self._walls = WallMaker()
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            self._walls.ask(fields, [*told, self.users, self.processes, descriptor, to.fileno()])
        finally:
            os.close(descriptor)

    def give_walls_up(self) -> None:
        """What was to put them up does not. The next are put up by another process."""
        if self._walls is not None:
            self._walls.kill()
        self._walls = None

    def expect(self, pid: int) -> Callable[[], Awaitable[int | None]]:
        """Who asks this, once that process of it has ended, is told what with; None = not known."""
        number = next(iter(numbers_of(pid)[1:2]), 0)
        ended = self._codes[number] = asyncio.get_running_loop().create_future()

        async def told() -> int | None:
            with suppress(TimeoutError):
                async with asyncio.timeout(TOLD_S):
                    await asyncio.shield(ended)
            self._codes.pop(number, None)
            return ended.result() if ended.done() else None

        return told

    def retire(self) -> None:
        """Its program has ended, or ends now; what it has forked goes on, and is told of."""
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)
        if self._walls is not None:
            self._walls.close()
        for each in (self.users, self.processes):
            if each >= 0:
                os.close(each)
        self.users = self.processes = -1
        self._inherited.close()
        if self._burial is None:
            self._channel.close()

    async def gone(self) -> None:
        """Returns when nothing of it is left, once it was retired."""
        if self._burial is not None:
            await asyncio.shield(self._burial)
        if self._walls is not None:
            await self._walls.gone()

    def _hear(self) -> None:
        try:
            received = self._channel.recv(_LINES_BYTES)
        except OSError:
            received = b""
        if not received:
            self._stop_hearing()
            return
        *lines, self._received = (self._received + received).split(b"\n")
        for line in lines:
            number, code = map(int, line.split())
            if (ended := self._codes.get(number)) is not None and not ended.done():
                ended.set_result(code)

    def _stop_hearing(self) -> None:
        asyncio.get_running_loop().remove_reader(self._channel)
        self._channel.close()
        for ended in self._codes.values():
            if not ended.done():
                ended.set_result(None)
