"""What shows a program within walls more of this machine's files, once; its other side waits in the
walls (`launcher.mount_helper`)."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable

from hotplate.deploy.process.detached import until_reaped
from hotplate.deploy.sandbox.launcher.instructions import READ, WRITE, written
from hotplate.deploy.sandbox.launcher.mount_helper import SHOWN

_ANSWER_BYTES = 1 << 12


class MountHelper:
    """In the walls around one process: shows it more, once. Within the block, its other side too
    is open here, for the process to inherit."""

    def __init__(self, *, wanted: bool = True) -> None:
        self.waits = 0
        """The child of ours that waits there; 0 = none."""
        self._sides = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) if wanted else ()

    @property
    def descriptors(self) -> list[int]:
        """What the process has to inherit."""
        return [side.fileno() for side in self._sides[1:]]

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        for side in self._sides[1:]:
            side.close()

    async def show(self, reads: Iterable[str], writes: Iterable[str]) -> None:
        """Returns when the helper has ended. Raises OSError."""
        lines = [(READ, path, "") for path in reads]
        lines += [(WRITE, path, "") for path in writes]
        for side in self._sides[:1]:
            side.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(side, written(lines))
            answer = await loop.sock_recv(side, _ANSWER_BYTES)
            if answer != SHOWN:
                raise OSError(os.fsdecode(answer) or "its mount helper has ended")
            side.close()
            await until_reaped(self.waits)
            self.waits = 0

    def close(self) -> None:
        for side in self._sides:
            side.close()
