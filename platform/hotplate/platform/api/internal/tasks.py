"""The tasks' routes between the gateways and the control plane, under `/internal/tasks/`.

A gateway passes on what callers ask of a task's route; the task is kept here, offered to all
gateways on their `task_links`, started by the first that has a slot for it, and its answer is kept
until it expires. What may happen to a task is in `store/task_state`; large bodies lie in the blob
store (`task_contents`).

What a caller is answered is a frame with BentoML's own statuses and bodies; what goes wrong here
is an error like any other, which the gateway makes a 503 of.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from secrets import randbelow
from typing import Any
from uuid import uuid4

from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError

from hotplate.cache.errors import CacheError
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.store.parts import PART_NUMBER_MAX
from hotplate.platform.api.internal.task_contents import INPUT_PART, TaskContents
from hotplate.platform.controller.gateways.task_links import TaskLinks
from hotplate.platform.errors import BodyCut, Conflict, Invalid, NotFound
from hotplate.platform.store.records import Task, TaskContent, Turn
from hotplate.platform.store.task_state import Cancel, Start, Status, TaskEnd
from hotplate.platform.store.tasks import Tasks
from hotplate.serving.gateway.protocol.frames import frame_head, framed
from hotplate.serving.gateway.protocol.priority import USUAL_PRIORITY

log = logging.getLogger("hotplate.tasks")

IDLE_S = 60.0
"""A gateway that sends nothing more of a body for so long has gone."""
SWEPT = 500
"""Tasks forgotten at once."""
TASK_ID = re.compile(r"[0-9a-f]{32}")


class TaskRoutes:
    """Keeps what is submitted, tells how it stands, and has it run."""

    def __init__(
        self, tasks: Tasks, blobs: BlobStore, lines: TaskLinks, *, results_s: float
    ) -> None:
        self._tasks = tasks
        self._contents = TaskContents(blobs)
        self._lines = lines
        self._results_s = results_s

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/internal/tasks/line", self._lines.handle),
            web.post("/internal/tasks/{verb:submit|status|get|cancel|retry}", self.call),
            web.post("/internal/tasks/{id:[0-9a-f]+}/start", self.start),
            web.post("/internal/tasks/{id:[0-9a-f]+}/end", self.end),
        ]

    # What callers ask

    async def call(self, request: web.Request) -> web.StreamResponse:
        """`?route=…&path=…[&task_id=…]`: one call of a task route."""
        route, verb = request.query["route"], request.match_info["verb"]
        if verb == "submit":
            return await self._submit(request, route)
        task_id = request.query.get("task_id")
        if task_id is None:
            return _json_response(400, {"error": "task_id is required"})
        try:
            if not TASK_ID.fullmatch(task_id):
                raise NotFound("task_id not found")
            task = await self._tasks.run(self._tasks.get, route, task_id)
            match verb:
                case "status":
                    return _json_response(200, status_json(task))
                case "get":
                    return await self._get(request, task)
                case "cancel":
                    return await self._cancel(route, task)
                case _:
                    return await self._retry(route, task)
        except NotFound:
            return _json_response(404, {"error": "task_id not found"})
        except Conflict as error:
            return _json_response(400, {"error": str(error)})

    async def _submit(self, request: web.Request, route: str) -> web.StreamResponse:
        task_id = uuid4().hex
        asked = request.query
        turn = Turn(
            asked.get("organization", ""),
            int(asked.get("priority", USUAL_PRIORITY)),
            asked.get("version", ""),
        )
        content = await self._take(request, task_id, INPUT_PART)
        return await self._add(task_id, route, asked["path"], content, turn)

    async def _add(
        self, task_id: str, route: str, path: str, content: TaskContent, turn: Turn
    ) -> web.Response:
        try:
            task = await self._tasks.run(self._tasks.add, task_id, route, path, content, turn)
        except BaseException:  # a cancelled request too: nobody else knows what it left
            await self._contents.drop([task_id])
            raise
        await self._lines.offer(task_id, route, turn)
        return _json_response(200, {"task_id": task_id, "status": task.status})

    async def _get(self, request: web.Request, task: Task) -> web.StreamResponse:
        if task.status == Status.CANCELED:
            raise Conflict(f"task {task.id} was canceled")
        if task.completed_at is None:
            raise Conflict(f"task {task.id} is not completed yet")
        answer = await self._tasks.run(self._tasks.answer_of, task.id)
        return await self._send(request, task.id, answer)

    async def _cancel(self, route: str, task: Task) -> web.StreamResponse:
        task = await self._tasks.run(
            self._tasks.change, task.id, Cancel(), self._lines.is_gone, route=route
        )
        await self._lines.withdraw(task.id)
        return _json_response(200, status_json(task))

    async def _retry(self, route: str, task: Task) -> web.StreamResponse:
        if not Status(task.status).ended:
            raise Conflict(f"task {task.id} is not completed yet")
        path, content, turn = await self._tasks.run(self._tasks.input_of, task.id)
        task_id = uuid4().hex
        again = await self._contents.copy(task.id, task_id, content)
        return await self._add(task_id, route, path, again, turn)

    # What gateways say

    async def start(self, request: web.Request) -> web.StreamResponse:
        """`?gateway=ID`: it is written that the gateway runs it now; answers its input."""
        task_id = request.match_info["id"]
        gateway = request.query["gateway"]
        await self._tasks.run(self._tasks.change, task_id, Start(gateway), self._lines.is_gone)
        await self._lines.withdraw(task_id, gateway)
        _, content, _ = await self._tasks.run(self._tasks.input_of, task_id)
        return await self._send(request, task_id, content)

    async def end(self, request: web.Request) -> web.StreamResponse:
        """`?gateway=ID[&note=…]` and an answer: the task has ended; the note says why without one.

        An answer that comes a second time, because the gateway never heard of the first, is fine.
        """
        task_id = request.match_info["id"]
        # Where another gateway's answer has been taken meanwhile, this one is not to replace it.
        content = await self._take(
            request, task_id, INPUT_PART + 1 + randbelow(PART_NUMBER_MAX - 1)
        )
        event = TaskEnd(request.query["gateway"], int(content.head[:3]))
        note = request.query.get("note", "")
        await self._tasks.run(
            self._tasks.change, task_id, event, self._lines.is_gone, answer=content, note=note
        )
        return web.json_response({})

    # The sweeper's

    async def sweep(self) -> None:
        """Forgets tasks whose time is over, and those of deployments that are gone.

        Raises CacheError and StoreFailed.
        """
        before = datetime.now(UTC) - timedelta(seconds=self._results_s)
        while old := await self._tasks.run(self._tasks.old, before, SWEPT):
            await self._contents.drop(old)
            await self._tasks.run(self._tasks.forget, old)
            log.info("%d tasks are forgotten: they ended long ago, or with a deployment", len(old))

    # Inside

    async def _take(self, request: web.Request, task_id: str, part: int) -> TaskContent:
        """A frame that arrives. Raises BodyCut where it does not arrive whole, and Invalid."""
        try:
            async with asyncio.timeout(IDLE_S):
                head = await frame_head(request.content.readexactly)
            return await self._contents.take(task_id, part, head, lambda: _piece(request))
        except ValueError as error:
            raise Invalid(f"body: {error}") from error
        except (
            ConnectionError,
            ClientPayloadError,
            HttpProcessingError,
            TimeoutError,
            asyncio.IncompleteReadError,
        ) as error:
            raise BodyCut("the body ended early, or stood still; send it again") from error

    async def _send(
        self, request: web.Request, task_id: str, content: TaskContent
    ) -> web.StreamResponse:
        answer = web.StreamResponse()
        head = framed(content.head)
        answer.content_length = len(head) + content.size_bytes
        await answer.prepare(request)
        await answer.write(head)
        try:
            async for piece in self._contents.pieces(task_id, content):
                await answer.write(piece)
        except CacheError:
            log.exception("task %s: its body cannot be read", task_id)
            answer.force_close()
            if request.transport is not None:
                request.transport.abort()  # it may not look complete
        return answer


async def _piece(request: web.Request) -> bytes:
    async with asyncio.timeout(IDLE_S):
        return await request.content.readany()


def status_json(task: Task) -> Mapping[str, Any]:
    """As BentoML tells it; times in ISO 8601."""

    def at(moment: datetime | None) -> str | None:
        return None if moment is None else moment.isoformat()

    return {
        "task_id": task.id,
        "status": task.status,
        "created_at": at(task.created_at),
        "executed_at": at(task.executed_at),
    }


def _json_response(status: int, content: Mapping[str, Any]) -> web.Response:
    """An answer for the caller, in a frame; compact, as BentoML writes JSON."""
    body = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    reason = {200: "OK", 400: "Bad Request", 404: "Not Found"}[status]
    head = f"{status} {reason}\r\nContent-Type: application/json\r\n".encode()
    return web.Response(body=framed(head) + body)
