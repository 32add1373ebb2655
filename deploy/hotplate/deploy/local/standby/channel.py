"""What is said between us and a warm process, over a Unix socket.

It writes a JSON object a line. A job is one byte and three descriptors: a document with `env` and
`job`, the listening socket, the log; it answers `{"taken": true}`, or `{"refused": why}` and ends.
A template is told to fork by one byte and descriptors: the fork's channel, and what it enters.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hotplate.deploy.errors import StandbyEnded, StandbyRefused
from hotplate.deploy.process.detached import document
from hotplate.deploy.process.printable import printable
from hotplate.deploy.process.readable import until_readable

ANSWER_S = 5.0
"""Until a process that only waits has answered: far more than it needs, less than a cold start."""
LINE_BYTES = 64 << 10
REFUSAL_CHARS = 500
"""Of what it says, at most: code of its environment may speak in its place."""
_CREDENTIALS = struct.Struct("iII")


class WarmChannel:
    """Our side. Its other side is open here, too, until `hand_out`."""

    def __init__(self) -> None:
        self._ours, self.theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # of all that is said
        self._received = b""

    async def line(self) -> dict[str, Any]:
        """What it says next. Raises `StandbyRefused`."""
        while b"\n" not in self._received:
            if len(self._received) > LINE_BYTES:
                raise StandbyRefused(f"it wrote a line of more than {LINE_BYTES} bytes")
            try:
                received = await asyncio.get_running_loop().sock_recv(self._ours, 1 << 16)
            except OSError as error:
                raise StandbyRefused(f"its messages cannot be read: {error}") from error
            if not received:
                raise StandbyEnded("it ended")
            self._received += received
        line, _, self._received = self._received.partition(b"\n")
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise StandbyRefused("it wrote something other than a JSON object")
        return said

    async def sender(self) -> int:
        """The process id, as the kernel tells it to us, of what says something next, which is one
        line. Raises `StandbyRefused`."""
        await until_readable(self._ours.fileno())
        received, about, _, _ = self._ours.recvmsg(LINE_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
        self._received = received
        if "forked" not in (said := await self.line()):
            raise refusal(said)
        of_it = [data for _, kind, data in about if kind == socket.SCM_CREDENTIALS]
        pid = int(_CREDENTIALS.unpack(of_it[0])[0]) if of_it else 0
        if not pid:
            raise StandbyRefused("nobody that we see has said that it was forked")
        return pid

    def send(self, letter: bytes, descriptors: Sequence[int]) -> None:
        """Raises OSError."""
        socket.send_fds(self._ours, [letter], descriptors)

    async def give(
        self, env: Mapping[str, str], job: Mapping[str, Any], listener: socket.socket, log: Path
    ) -> None:
        """Have it take that job. Raises `StandbyRefused` and OSError."""
        written = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        message = document({"env": dict(env), "job": dict(job)})
        try:
            self.send(b"j", [message, listener.fileno(), written])
        finally:
            os.close(message)
            os.close(written)
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await self.line()
        except TimeoutError:
            raise StandbyRefused(f"it did not answer within {ANSWER_S:g} s") from None
        if not answer.get("taken"):
            raise refusal(answer)

    def close(self) -> None:
        self._ours.close()
        self.theirs.close()


def refusal(said: Mapping[str, Any]) -> StandbyRefused:
    """Of what has said that."""
    whys = (said.get(key) for key in ("refused", "unforkable", "unusable"))
    why = next(filter(None, whys), "it answered something else")
    return StandbyRefused(printable(str(why))[:REFUSAL_CHARS])
