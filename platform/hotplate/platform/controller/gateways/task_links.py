"""The links to the gateways on which tasks are offered to be run.

A gateway is a process: one that starts anew is another gateway. Every task that waits is offered
to all that are connected; it waits in the queue of the one that owns its deployment, and belongs to
the first that starts it. When that one is gone for good, what it had is offered again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Sequence

from aiohttp import WSCloseCode, WSMsgType, web

from hotplate.platform.errors import Invalid
from hotplate.platform.store.records import OfferedTask, Turn
from hotplate.platform.store.tasks import Tasks

log = logging.getLogger("hotplate.tasks")

LOST_S = 10.0
"""A gateway that has been away for so long has ended. Shorter than this are a restart of the
control plane, and a line that was cut."""
HEARTBEAT_S = 5.0


class TaskLinks:
    """Offers tasks to gateways, and knows which gateways have gone for good."""

    def __init__(
        self,
        tasks: Tasks,
        lost_s: float = LOST_S,
        may_go_on: Callable[[str, Collection[str]], bool] = lambda gateway, come: False,
    ) -> None:
        """`may_go_on` says of a gateway that has been away for `lost_s` whether it may still run,
        out of sight; it is given all that have come, and asked from any thread."""
        self._tasks = tasks
        self._lost_s = lost_s
        self._may_go_on = may_go_on
        self._lines: dict[str, web.WebSocketResponse] = {}
        self._disconnected_at: dict[str, float] = {}
        self._loop = asyncio.get_running_loop()
        self._began_at = self._loop.time()
        self._looks: set[asyncio.TimerHandle] = set()
        self._offering: set[asyncio.Task[None]] = set()
        self._look_later()

    def is_gone(self, gateway: str) -> bool:
        """Whether the gateway has been away for too long, and does not run where nobody sees it."""
        if gateway in self._lines:
            return False
        since = self._disconnected_at.get(gateway, self._began_at)
        away = self._loop.time() >= since + self._lost_s
        return away and not self._may_go_on(gateway, [*self._disconnected_at, *self._lines])

    async def offer(self, task_id: str, route: str, turn: Turn) -> None:
        """Offer a task to be run. While no gateway is there, the next one gets it when it comes."""
        for gateway in list(self._lines):
            await self._send(gateway, run=[OfferedTask(task_id, route, "", turn)])

    async def withdraw(self, task_id: str, starter: str = "") -> None:
        """A task no longer waits: it was cancelled, or the `starter` runs it."""
        for gateway in list(self._lines):
            if gateway != starter:
                await self._send(gateway, drop=[task_id])

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """`GET /internal/tasks/line?gateway=ID`: the WebSocket of a gateway (authorized)."""
        gateway = request.query.get("gateway", "")
        if not gateway:
            raise Invalid("gateway: the id of the gateway is missing")
        socket = web.WebSocketResponse(heartbeat=HEARTBEAT_S)
        await socket.prepare(request)
        greeting = await socket.receive()
        if greeting.type is not WSMsgType.TEXT:  # it has left, or its network has
            return socket
        waiting = json.loads(greeting.data)["waiting"]
        self._lines[gateway] = socket
        try:
            self._offer_soon(gateway, waiting)
            async for message in socket:
                if message.type is not WSMsgType.TEXT:
                    break
        finally:
            if self._lines.get(gateway) is socket:
                del self._lines[gateway]
                self._disconnected_at[gateway] = self._loop.time()
                self._look_later()
        return socket

    async def close(self) -> None:
        """Part with the gateways, before the server is shut down."""
        for look in self._looks:
            look.cancel()
        for task in self._offering:
            task.cancel()
        for socket in list(self._lines.values()):
            await socket.close(code=WSCloseCode.GOING_AWAY)

    # Inside

    def _look_later(self) -> None:
        """Looks for what a gateway has left behind, once it counts as gone."""

        def look() -> None:
            self._looks.discard(handle)
            self._offer_soon("", ())

        handle = self._loop.call_later(self._lost_s, look)
        self._looks.add(handle)

    def _offer_soon(self, newcomer: str, waiting: Collection[str]) -> None:
        task = self._loop.create_task(self._offer_all(newcomer, waiting))
        self._offering.add(task)
        task.add_done_callback(self._offered)

    def _offered(self, task: asyncio.Task[None]) -> None:
        self._offering.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("tasks cannot be offered now, and will be offered again: %s", error)
            self._look_later()

    async def _offer_all(self, newcomer: str, waiting: Collection[str]) -> None:
        """Offers every open task that no gateway has to the newcomer, who knows of those that are
        `waiting`; with no newcomer, to all."""
        tasks = await self._tasks.run(self._tasks.unfinished)
        named = {task.gateway for task in tasks if task.gateway}
        gone = {gateway for gateway in named if self.is_gone(gateway)}
        free = [task for task in tasks if not task.gateway or task.gateway in gone]
        if named - gone - self._lines.keys() and not self._looks:
            self._look_later()  # until it is known what became of those out of sight
        ended = set(waiting) - {task.id for task in tasks}
        for gateway in [newcomer] if newcomer else list(self._lines):
            await self._send(gateway, free, ended)

    async def _send(
        self, gateway: str, run: Sequence[OfferedTask] = (), drop: Collection[str] = ()
    ) -> None:
        socket = self._lines.get(gateway)
        if socket is None or not (run or drop):
            return
        offered = [
            {"id": task.id, "route": task.route, "lost": bool(task.gateway)} | vars(task.turn)
            for task in run
        ]
        try:
            await socket.send_json({"run": offered, "drop": list(drop)})
        except ConnectionError as error:  # it is told all of it when it comes back
            log.info("tasks cannot be sent to gateway %s now: %s", gateway, error)
