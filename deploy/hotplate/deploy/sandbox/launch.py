"""One way through the launcher: what it is told, and what it says of the processes it has made; and
one that stays, for the walls of forks."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hotplate.deploy.errors import SpawnFailed
from hotplate.deploy.process.detached import launch, until_reaped
from hotplate.deploy.process.procfs import stat_of
from hotplate.deploy.process.readable import until_readable
from hotplate.deploy.sandbox.launcher.instructions import Line, written
from hotplate.deploy.sandbox.process_scope import launcher

_REPORT_BYTES = 1 << 12


@dataclass(frozen=True)
class LaunchReport:
    """Numbers of our new children; 0 for those that there are not."""

    program: int
    first: int
    """The first process of the program's namespace: what is in there ends with it."""
    at_helper: int
    why_not: str
    """Why there is no program, if so."""


class Launch:
    """Used once. The sides that the launcher inherits are open until `close_inherited`."""

    def __init__(self, lines: list[Line]) -> None:
        self._plan = os.memfd_create("plan")
        os.write(self._plan, written(lines))
        os.lseek(self._plan, 0, os.SEEK_SET)
        self._report_reader, self._report_writer = os.pipe()

    def words(self, helper: Sequence[int] = ()) -> list[str]:
        """What stands between a scope's launcher and the program."""
        return [str(self._plan), str(self._report_writer), "".join(map(str, helper))]

    @property
    def descriptors(self) -> list[int]:
        """What the launcher has to inherit."""
        return [self._plan, self._report_writer]

    def close_inherited(self) -> None:
        """It has inherited them, or will not."""
        os.close(self._plan)
        os.close(self._report_writer)

    async def entered(self) -> LaunchReport:
        """As soon as the program runs, or cannot. Raises `SpawnFailed` where nothing is said."""
        report = b""
        try:
            while more := await self._more():
                report += more
        finally:
            os.close(self._report_reader)
        return _entered(report)

    async def _more(self) -> bytes:
        await until_readable(self._report_reader)
        return os.read(self._report_reader, _REPORT_BYTES)

    def entered_now(self) -> LaunchReport:
        """The same, for who may wait."""
        with open(self._report_reader, "rb") as file:
            return _entered(file.read())


class WallMaker:
    """A launcher that stays, and puts up walls around the forks of one program at our word.

    Made within a running event loop, which buries it when it ends. `close` has it end.
    """

    def __init__(self) -> None:
        """Raises `SpawnFailed` and OSError."""
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setblocking(False)
        try:
            with theirs:
                number = theirs.fileno()
                argv = [*launcher("wall_maker"), str(number)]
                self.pid = launch(argv, {}, "/", os.devnull, pass_fds=[number])
        except BaseException:  # also when interrupted: cleaned up, and raised again
            self._channel.close()
            raise
        self._burial = asyncio.get_running_loop().create_task(until_reaped(self.pid))

    @property
    def takes_orders(self) -> bool:
        return not self._burial.done() and stat_of(self.pid).state not in "TtZX"

    def ask(self, fields: Sequence[str], descriptors: Collection[int]) -> None:
        """As the process is told what to do (`launcher.wall_maker`). Raises `SpawnFailed`."""
        told = b"".join(os.fsencode(field) + b"\0" for field in fields)
        try:
            socket.send_fds(self._channel, [told], list(descriptors))
        except OSError as error:
            raise SpawnFailed(
                f"What puts up the walls of forks (process {self.pid}) takes no order: "
                f"{error.strerror}."
            ) from error

    def close(self) -> None:
        """It ends once it has done what it was told."""
        self._channel.close()

    def kill(self) -> None:
        """The same of one that does nothing."""
        self.close()
        if not self._burial.done():
            os.kill(self.pid, signal.SIGKILL)

    async def gone(self) -> None:
        """Returns when it has ended, once it was closed."""
        await asyncio.shield(self._burial)


def _entered(report: bytes) -> LaunchReport:
    if not report:
        raise SpawnFailed("The launcher of an isolated program has ended without a message.")
    program, first, at_helper, why_not = os.fsdecode(report).split(" ", 3)
    return LaunchReport(int(program), int(first), int(at_helper), why_not)
