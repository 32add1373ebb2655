"""What a gateway cannot see of a handler from its connection; runs in the replica (Python >= 3.9).

* That it begins: the interim answer `STARTED` goes out before the application is called. What is
  cut before it has not run, and may be sent to another replica. (A network that loses packets can
  lose this one with the machine; on one machine it is exact.)
* That it does not begin, and goes back: another interim answer (`fence.py`).
* That it has ended: the connection stays open until then, whichever side has closed it. So if a
  gateway ends its own side, which the application sees as its caller leaving, it gets the other
  side's end when the handler has ended.
* That it is not to begin: `GET /hotplate/recall/PASSED,…` answers `{"begun": […]}` (`begun.py`).
* How many run now: `GET /hotplate/running` answers `{"running": n, "websockets": m, "tasks": k}`,
  for all of the replica's processes; n has the others too. It is never passed on from outside.

And `GET /hotplate/report` answers what the replica says of its start (`report.py`).
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any

from hotplate.serving.replica.inside.patches.begun import take_passed
from hotplate.serving.replica.inside.patches.fence import (
    ELSEWHERE,
    FULL,
    Fence,
    Permit,
    take_permit,
)
from hotplate.serving.replica.inside.patches.hooks import TASK_ID, Application, Middleware
from hotplate.serving.replica.inside.patches.running import ANY, TASK, WEBSOCKET, Running

STARTED = b"HTTP/1.1 100 Started\r\n\r\n"
"""A client that asks a replica without a gateway passes over it, as over any 100. The server itself
sends one only to clients that expect it, and a gateway does not pass that on."""
RUNNING_PATH = b"/hotplate/running"
RECALL_PATH = b"/hotplate/recall/"
REPORT_PATH = b"/hotplate/report"
REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""Idempotent methods (RFC 9110, 9.2.2) may go out again even when they have begun."""
ASKED_BACK = json.dumps(
    {
        "error": {
            "code": "asked_back",
            "message": "The gateway that passed this request on has it back; nobody waits for it.",
        }
    }
).encode()
"""To a gateway that goes on with it: the connection's end would be a failure of the replica."""
PAST_GATEWAYS = json.dumps(
    {
        "error": {
            "code": "not_by_gateway",
            "message": "This replica answers gateways only; call the URL of its deployment.",
        }
    }
).encode()
UPGRADE = b"upgrade"
"""A request for another protocol may not; and where a plain handler runs in place of a WebSocket's,
as in an environment without a library for those, the gateway is to know."""


class HandlerWatch(Middleware):
    """The outermost layer. A request does not begin that the gateway has given up before, or that
    the fence sends back."""

    def __init__(
        self, app: Application, running: Running, report: Callable[[], bytes], uid: str = ""
    ) -> None:
        """`report` is what it says of its start, as JSON; `uid` is what gateways call this
        replica."""
        super().__init__(app)
        self._running, self._report = running, report
        self._fence = Fence(running, uid)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http" and scope["raw_path"] == RUNNING_PATH:
            await _say(send, self._counts())
        elif scope["type"] == "http" and scope["raw_path"].startswith(RECALL_PATH):
            await _say(send, self._recalled(scope["raw_path"][len(RECALL_PATH) :]))
        elif scope["type"] == "http" and scope["raw_path"] == REPORT_PATH:
            await _say(send, await asyncio.to_thread(self._report))
        else:
            await self._pass(scope, receive, send)

    async def _pass(self, scope: Any, receive: Any, send: Any) -> None:
        """Has the request begin, if the fence lets it."""
        # The server's object for this request, whose method `receive` is, has the connection.
        transport = receive.__self__.transport
        permit = take_permit(scope)
        if permit is None and self._is_bypassed(scope, transport):
            await _refuse(scope, send)
        elif permit is None:
            await self._handle(scope, receive, send, transport)
        elif self._fence.is_elsewhere(permit):
            await _go_back(receive, transport, ELSEWHERE)
        elif permit.slots:
            await self._take_slot(permit, scope, receive, send, transport)
        else:
            await self._handle(scope, receive, send, transport)

    def _is_bypassed(self, scope: Any, transport: Any) -> bool:
        if transport.is_closing():  # it is given up, and nobody is there to be told
            return False
        return self._fence.is_bypassed(scope, transport.get_extra_info("peername"))

    async def _take_slot(
        self, permit: Permit, scope: Any, receive: Any, send: Any, transport: Any
    ) -> None:
        slot = await self._fence.enter(permit, transport.is_closing)
        if slot is None:
            await _go_back(receive, transport, FULL)
            return
        watch = None
        if scope["type"] == "websocket":
            watch = asyncio.create_task(slot.free_when_abandoned(transport))
        try:
            await self._handle(scope, receive, send, transport)
        finally:
            slot.free()
            if watch is not None:
                watch.cancel()

    async def _handle(self, scope: Any, receive: Any, send: Any, transport: Any) -> None:
        if transport.is_closing():
            await _disconnected(receive)
            return
        connection = _connection(transport)
        kind = _kind(scope)
        self._running.begin(kind)
        try:
            if not self._may_begin(scope):
                await _say(send, ASKED_BACK, 409)
            elif _begins(scope, connection):
                await self.app(scope, receive, send)
            else:
                transport.abort()
                await _disconnected(receive)
        finally:
            self._running.end(kind)
            os.close(connection)

    def _may_begin(self, scope: Any) -> bool:
        """Whether the request was not asked back; if not, it has begun."""
        if scope["type"] != "http" or scope["method"] in REPEATABLE:
            return True
        passed = take_passed(scope)
        return not passed or self._running.begun.begin(passed)

    def _recalled(self, asked: bytes) -> bytes:
        begun = self._running.begun.recall(asked.split(b","))
        return json.dumps({"begun": [each.decode() for each in begun]}).encode()

    def _counts(self) -> bytes:
        running = self._running
        message = {
            "running": running.count(),
            "websockets": running.count(WEBSOCKET),
            "tasks": running.count(TASK),
        }
        return json.dumps(message).encode()


async def _say(send: Any, body: bytes, status: int = 200) -> None:
    """Answers with that JSON."""
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _refuse(scope: Any, send: Any) -> None:
    """Answers with 403 a caller that has come past the gateways."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
    else:
        await _say(send, PAST_GATEWAYS, 403)


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


def _connection(transport: Any) -> int:
    """The connection's descriptor, which stays open until it is closed here."""
    return os.dup(transport.get_extra_info("socket").fileno())


async def _go_back(receive: Any, transport: Any, why: bytes) -> None:
    """Tells the gateway that the request has not begun, and why. The gateway ends the connection;
    if it ended here, the gateway could miss the reason."""
    if not transport.is_closing():
        connection = _connection(transport)
        try:
            told = os.write(connection, why) == len(why)
        except OSError:
            told = False
        finally:
            os.close(connection)
        if not told:
            transport.abort()
    await _disconnected(receive)


def _upgrades(scope: Any) -> bool:
    return any(name == UPGRADE for name, _ in scope["headers"])


async def _disconnected(receive: Any) -> None:
    while (await receive())["type"] not in ("http.disconnect", "websocket.disconnect"):
        pass
