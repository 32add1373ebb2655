"""The process that puts up walls around the forks of one program, at our word."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Collection, Sequence

from hotplate.deploy.errors import SpawnFailed
from hotplate.deploy.process.detached import launch, until_reaped
from hotplate.deploy.sandbox.process_scope import launcher


class WallMaker:
    """Made within a running event loop, which buries it when it ends. `close` has it end."""

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
    def has_ended(self) -> bool:
        return self._burial.done()

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

    async def gone(self) -> None:
        """Returns when it has ended, once it was closed."""
        await asyncio.shield(self._burial)
