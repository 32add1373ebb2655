"""What a gateway cannot see of a handler from its connection; runs in the replica (Python >= 3.9).

* That it begins: the interim answer `STARTED` goes out before the application is called. What is
  cut before it has not run, and may be sent to another replica. (A network that loses packets can
  lose this one with the machine; on one machine it is exact.)
* That it has ended: the connection stays open until then, whichever side has closed it. So if a
  gateway ends its own side, which the application sees as its caller leaving, it gets the other
  side's end when the handler has ended.
* How many run now: `GET /hotplate/running` answers `{"running": n, "websockets": m, "tasks": k}`,
  for all of the replica's processes; n has the others too. It is never passed on from outside.
"""

from __future__ import annotations

import json
import mmap
import os
from typing import Any, Optional

from hotplate.serving.replica.inside.patches.hooks import TASK_ID, Application, Middleware

STARTED = b"HTTP/1.1 100 Started\r\n\r\n"
"""A client that asks a replica without a gateway passes over it, as over any 100. The server itself
sends one only to clients that expect it, and a gateway does not pass that on."""
RUNNING_PATH = b"/hotplate/running"
REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""Idempotent methods (RFC 9110, 9.2.2) may go out again even when they have begun."""
UPGRADE = b"upgrade"
"""A request for another protocol may not; and where a plain handler runs in place of a WebSocket's,
as in an environment without a library for those, the gateway is to know."""
ANY, WEBSOCKET, TASK = range(3)
ROW = 3
"""The counts of a process: all its handlers, those of WebSockets, those of kept tasks."""
CELL_BYTES = 8


class Running:
    """The number of handlers that run in a replica's processes; each process has a row of its
    own."""

    def __init__(self, worker: int = 1, workers: int = 1, fd: Optional[int] = None) -> None:  # noqa: UP045
        """`worker` counts from 1. `fd` is memory that `share` made for several."""
        shared = mmap.mmap(-1 if fd is None else fd, CELL_BYTES * ROW * workers)
        if fd is not None:
            os.close(fd)  # the map has its own
        self._cells = memoryview(shared).cast("q")
        self._own = ROW * (worker - 1)

    @staticmethod
    def share(workers: int) -> int:
        """A descriptor of memory for that many processes; not inheritable by itself."""
        fd = os.memfd_create("hotplate-running")
        os.ftruncate(fd, CELL_BYTES * ROW * workers)
        return fd

    def count(self, kind: int = ANY) -> int:
        """How many handlers of that kind run in all processes."""
        return sum(self._cells[kind::ROW])

    def begin(self, kind: int = ANY) -> None:
        self._change(kind, 1)

    def end(self, kind: int = ANY) -> None:
        self._change(kind, -1)

    def _change(self, kind: int, by: int) -> None:
        self._cells[self._own] += by
        if kind:
            self._cells[self._own + kind] += by


class HandlerWatch(Middleware):
    """The outermost layer. A request that the gateway has given up before it began does not
    begin."""

    def __init__(self, app: Application, running: Running) -> None:
        super().__init__(app)
        self._running = running

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http" and scope["raw_path"] == RUNNING_PATH:
            await self._say_running(send)
        else:
            await self._handle(scope, receive, send)

    async def _handle(self, scope: Any, receive: Any, send: Any) -> None:
        # The server's object for this request, whose method `receive` is, has the connection.
        transport = receive.__self__.transport
        if transport.is_closing():
            await _disconnected(receive)
            return
        connection = os.dup(transport.get_extra_info("socket").fileno())
        kind = _kind(scope)
        self._running.begin(kind)
        try:
            if _begins(scope, connection):
                await self.app(scope, receive, send)
            else:
                transport.abort()
                await _disconnected(receive)
        finally:
            self._running.end(kind)
            os.close(connection)

    async def _say_running(self, send: Any) -> None:
        running = self._running
        message = {
            "running": running.count(),
            "websockets": running.count(WEBSOCKET),
            "tasks": running.count(TASK),
        }
        body = json.dumps(message).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _kind(scope: Any) -> int:
    if scope["type"] == "websocket":
        return WEBSOCKET
    return TASK if any(name == TASK_ID for name, _ in scope["headers"]) else ANY


def _begins(scope: Any, connection: int) -> bool:
    """Tell that the handler begins. False: it can no longer be told, so it must not.

    It is written past the server's buffers: a handler that ends the process at once has begun.
    """
    if scope["type"] != "http" or (scope["method"] in REPEATABLE and not _upgrades(scope)):
        return True
    try:
        return os.write(connection, STARTED) == len(STARTED)
    except OSError:
        return False


def _upgrades(scope: Any) -> bool:
    return any(name == UPGRADE for name, _ in scope["headers"])


async def _disconnected(receive: Any) -> None:
    while (await receive())["type"] not in ("http.disconnect", "websocket.disconnect"):
        pass
