"""A gateway's tasks: those that wait or run here, and the way to the control plane that keeps them.

The control plane says on a WebSocket which tasks wait. Each enters the queue of its deployment; one
that finds no room there, or whose deployment is not served just now, waits outside and is tried
again. What has ended is delivered, again and again until the control plane has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp

from hotplate.serving.gateway.admission.task_routes import DOCS, TaskCall, task_call
from hotplate.serving.gateway.errors import ReplicaFailed, TasksAway
from hotplate.serving.gateway.http1.request_head import RequestHead
from hotplate.serving.gateway.protocol.frames import LENGTH_BYTES, frame_head
from hotplate.serving.gateway.protocol.headers import TASK_ID
from hotplate.serving.gateway.protocol.priority import USUAL_PRIORITY
from hotplate.serving.gateway.protocol.routes import TASKS
from hotplate.serving.gateway.proxy.caller import Caller
from hotplate.serving.gateway.proxy.dispatcher import Dispatcher
from hotplate.serving.gateway.proxy.route_context import RouteContext
from hotplate.serving.gateway.tasks.control_plane_exchange import TaskExchange
from hotplate.serving.gateway.tasks.execution import ControlPlaneAway, NotWanted, TaskRun
from hotplate.serving.gateway.tasks.result import ResultFolder, TaskResult

if TYPE_CHECKING:
    from hotplate.serving.gateway.all_routes import Gateway
    from hotplate.serving.gateway.route_server import RouteServer

log = logging.getLogger(__name__)

BACKOFF_S = (0.1, 2.0)
"""First and longest pause before the control plane is tried again."""
OUTSIDE_S = 0.25
"""How often those outside try to enter."""
TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=60)
KEPT_BYTES = 4 << 30
"""Answers that may wait here together for the control plane."""
HEARTBEAT_S = 5.0
AWAY = (aiohttp.ClientError, OSError, TimeoutError, asyncio.IncompleteReadError, ValueError)
"""What a call of the control plane raises when it does not answer, or not well."""


class Message(NamedTuple):
    """A frame that arrives."""

    head: bytes
    size_bytes: int
    """Of its body."""
    body: AsyncIterator[bytes]


class TaskDesk:
    """Used from one event loop; `run` keeps the line until cancelled, `close` ends it all."""

    def __init__(self, gateway: Gateway, folder: Path, *, url: str, token: str) -> None:
        """`folder` is for answers that could not be delivered, also those of earlier gateways."""
        self.id = secrets.token_hex(8)
        """This process's, as the control plane knows it."""
        self._folder = ResultFolder(folder, self.id)
        self._gateway = gateway
        self._url = url.rstrip("/") + "/internal/"
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}"},
            timeout=TIMEOUT,
            connector=aiohttp.TCPConnector(limit=0),
        )
        self._runs: dict[str, TaskRun] = {}
        self._outside: dict[str, dict[str, TaskRun]] = {}
        """By route, and then by id in the order of their coming."""
        self._entering: asyncio.TimerHandle | None = None
        self._deliveries: dict[str, asyncio.Task[None]] = {}
        self._kept_bytes = 0

    @property
    def folder(self) -> Path:
        """Where this gateway's answers may be kept."""
        return self._folder.path

    # The line

    async def run(self) -> None:
        """Hears of tasks, and delivers what earlier gateways have left."""
        await self._load()
        pause, longest = BACKOFF_S
        while True:
            try:
                await self._listen()
                pause = BACKOFF_S[0]
            except AWAY as error:
                log.info("the control plane's line for tasks is down (%s); trying on", error)
            await asyncio.sleep(pause)
            pause = min(longest, pause * 2)

    async def close(self) -> None:
        """What still runs is cut; what has ended and was not delivered is kept on the disk."""
        if self._entering is not None:
            self._entering.cancel()
        for run in list(self._runs.values()):
            run.cut()
        deliveries = list(self._deliveries.values())
        for delivery in deliveries:
            delivery.cancel()
        await asyncio.gather(*deliveries, return_exceptions=True)
        self._folder.close()
        await self._session.close()

    # For the control plane

    def running(self) -> dict[str, dict[str, int]]:
        """How many tasks run, by route and by replica."""
        found: dict[str, dict[str, int]] = {}
        for run in self._runs.values():
            if run.running and run.ticket is not None and run.ticket.replica is not None:
                counts = found.setdefault(run.route, {})
                counts[run.ticket.replica.id] = counts.get(run.ticket.replica.id, 0) + 1
        return found

    # For callers

    def exchange(
        self, caller: Caller, context: RouteContext, request: RequestHead
    ) -> TaskExchange | None:
        """What moves the request, if it is a call of a task that is kept, or asks for the page that
        documents them."""
        call = task_call(context.dispatcher.route, request)
        return None if call is None else TaskExchange(caller, context, request, call, self)

    def full(self, dispatcher: Dispatcher) -> str:
        """Why no task more is taken for a route; empty = there is room."""
        route = dispatcher.route
        server = self._server_of(route.name)
        queue = dispatcher.queue if server is None else server.queue
        waiting = queue.queued + len(self._outside.get(route.name, ()))
        if waiting < route.queue_limit:
            return ""
        return f"{route.name}: {waiting} wait (queue_limit={route.queue_limit}); come back later."

    @asynccontextmanager
    async def asked(
        self, route: str, call: TaskCall, body: AsyncIterator[bytes] | None, **turn: str
    ) -> AsyncIterator[Message]:
        """The control plane's answer to a call of a task route, or of `DOCS`; `turn` says of what
        is submitted whose it is. Raises TasksAway."""
        params = {"route": route, "path": call.path, **turn}
        if call.task_id is not None:
            params["task_id"] = call.task_id
        url = self._url + (DOCS if call.verb == DOCS else f"tasks/{call.verb}")
        try:
            async with self._session.post(url, params=params, data=body) as said:
                if said.status != 200:
                    raise TasksAway(await _why(route, said), retry_after_s=1)
                yield await _message(said)
        except AWAY as error:
            message = f"{route}: tasks cannot be kept or looked up now, the control plane is away"
            raise TasksAway(f"{message}; try again.", retry_after_s=1) from error

    # For runs

    @asynccontextmanager
    async def started(self, run: TaskRun) -> AsyncIterator[Message]:
        """It is written that the task runs here now; the request to send.

        Raises NotWanted, and ControlPlaneAway, also in the middle of the body.
        """
        try:
            async with self._post(f"tasks/{run.id}/start", gateway=self.id) as said:
                if said.status in (404, 409):
                    raise NotWanted(await said.text())
                if said.status != 200:
                    raise ControlPlaneAway(await _why(run.route, said))
                head, size_bytes, body = await _message(said)
                length = b"Content-Length: %d\r\n%b: %b\r\n\r\n"
                head += length % (size_bytes, TASK_ID, run.id.encode())
                yield Message(head, size_bytes, body)
        except AWAY as error:
            raise ControlPlaneAway(f"the control plane is away ({error!r})") from error

    def leave_outside(self, run: TaskRun) -> None:
        """It has no place in the queue, and is to have one when it can."""
        if run.id in self._runs:
            self._outside.setdefault(run.route, {})[run.id] = run
            self._enter_later()

    def forget(self, run: TaskRun) -> None:
        """It has ended, or is not wanted."""
        self._runs.pop(run.id, None)

    def no_answer(self, run: TaskRun, what: str) -> TaskResult:
        """The result of a task that has none of its handler's."""
        error = ReplicaFailed(
            f"{run.route}: task {run.id} has no result: {what}. "
            "It may have run, so retry it only if that does no harm."
        )
        return TaskResult.of_error(self.folder, run.id, self.id, error)

    def deliver(self, run: TaskRun, result: TaskResult) -> None:
        """It has ended: the control plane is to have its result."""
        self.forget(run)
        self._deliver_soon(result)

    # Inside: the line

    async def _listen(self) -> None:
        url = self._url + "tasks/line"
        async with self._session.ws_connect(
            url, params={"gateway": self.id}, heartbeat=HEARTBEAT_S, max_msg_size=0
        ) as line:
            waiting = [run.id for run in self._runs.values() if not run.running]
            await line.send_json({"waiting": waiting})
            async for message in line:
                if message.type is aiohttp.WSMsgType.TEXT:
                    self._hear(message.json())

    def _hear(self, told: dict[str, Any]) -> None:
        for offer in told["run"]:
            task_id = offer["id"]
            if task_id not in self._runs and task_id not in self._deliveries:
                run = TaskRun(
                    self,
                    task_id,
                    offer["route"],
                    lost=offer["lost"],
                    organization=offer.get("organization", ""),
                    priority=offer.get("priority", USUAL_PRIORITY),
                )
                self._runs[task_id] = run
                if not self._enter(run):
                    self.leave_outside(run)
        for task_id in told["drop"]:
            waiting = self._runs.get(task_id)
            if waiting is not None and not waiting.running:
                self._take_away(waiting)

    def _take_away(self, run: TaskRun) -> None:
        self.forget(run)
        self._outside.get(run.route, {}).pop(run.id, None)
        if run.dispatcher is not None:
            run.dispatcher.withdraw(run)

    # Inside: the queue

    def _enter(self, run: TaskRun) -> bool:
        """Whether it has got a place, or needs none."""
        server = self._server_of(run.route)
        if server is None:
            return False
        if run.lost and not server.route.may_run_twice:
            what = "the gateway that had started it ended while it ran"
            self.deliver(run, self.no_answer(run, what))
            return True
        return run.enter(server.dispatcher)

    def _server_of(self, route: str) -> RouteServer | None:
        """Where tasks of a route wait for slots: for their own, where they have any."""
        apart = self._gateway.server(route + TASKS)
        if apart is not None and not apart.closing:
            return apart
        return self._gateway.server(route)

    def _enter_later(self) -> None:
        if self._entering is None:
            loop = asyncio.get_running_loop()
            self._entering = loop.call_later(OUTSIDE_S, self._enter_all)

    def _enter_all(self) -> None:
        """Tries those outside in their order; where one finds no room, those after it do not."""
        self._entering = None
        for route, runs in list(self._outside.items()):
            for run in list(runs.values()):
                if not self._enter(run):
                    break
                runs.pop(run.id, None)
            if not runs:
                del self._outside[route]
        if self._outside:
            self._enter_later()

    # Inside: results

    async def _load(self) -> None:
        try:
            left = await asyncio.to_thread(self._folder.open)
        except OSError as error:
            log.warning("answers of tasks cannot be kept in %s: %s", self.folder, error)
            return
        for path in left:
            try:
                result = TaskResult.load(path)
            except (OSError, ValueError, KeyError) as error:
                log.warning("%s is not a task's answer (%r); it is left there", path, error)
            else:
                self._deliver_soon(result)

    def _deliver_soon(self, result: TaskResult) -> None:
        task = asyncio.create_task(self._deliver(result))
        self._deliveries[result.task_id] = task
        task.add_done_callback(lambda _: self._deliveries.pop(result.task_id, None))

    async def _deliver(self, result: TaskResult) -> None:
        pause, longest = BACKOFF_S
        counted = 0
        try:
            while not await self._delivered(result):
                if not counted:
                    counted = result.size_bytes
                    self._kept_bytes += counted
                    result = await self._kept(result)
                await asyncio.sleep(pause)
                pause = min(longest, pause * 2)
        except asyncio.CancelledError:
            await self._kept(result)
            raise
        finally:
            self._kept_bytes -= counted
        result.drop()

    async def _delivered(self, result: TaskResult) -> bool:
        params = {"gateway": result.gateway, "note": result.note}
        try:
            if result.on_disk:
                await result.keep()
            async with self._post(f"tasks/{result.task_id}/end", result.pieces(), **params) as said:
                if said.status in (404, 409):
                    log.warning("task %s: its answer is not wanted any more", result.task_id)
                elif said.status != 200:
                    log.warning("task %s: %s", result.task_id, await said.text())
                return said.status in (200, 404, 409)
        except AWAY as error:
            log.info("task %s: its answer waits for the control plane (%r)", result.task_id, error)
            return False

    async def _kept(self, result: TaskResult) -> TaskResult:
        """The result on the disk, or, where there is no room for it, that there is none."""
        try:
            if self._kept_bytes > KEPT_BYTES:
                raise OSError(f"{KEPT_BYTES} bytes of answers wait already")
            await result.keep()
        except OSError as error:
            log.warning("task %s: its answer cannot be kept: %s", result.task_id, error)
            result.drop()
            failure = ReplicaFailed(
                f"task {result.task_id} has ended; its answer was lost: {error}"
            )
            return TaskResult.of_error(self.folder, result.task_id, result.gateway, failure)
        return result

    @asynccontextmanager
    async def _post(
        self, path: str, body: AsyncIterator[bytes] | None = None, **params: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        async with self._session.post(self._url + path, params=params, data=body) as answer:
            yield answer


async def _message(answer: aiohttp.ClientResponse) -> Message:
    head = await frame_head(answer.content.readexactly)
    size_bytes = int(answer.headers["Content-Length"]) - LENGTH_BYTES - len(head)
    return Message(head, size_bytes, answer.content.iter_any())


async def _why(route: str, answer: aiohttp.ClientResponse) -> str:
    """What the control plane says of itself, in a sentence."""
    said = await answer.text()
    with contextlib.suppress(ValueError, KeyError, TypeError):
        said = (await answer.json())["error"]["message"]
    return f"{route}: tasks cannot be kept or looked up now: {said}"
