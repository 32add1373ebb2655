"""What a gateway asks of the control plane about kept tasks, and what it learns from there."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol

import aiohttp

from hotplate.serving.gateway.admission.task_routes import DOCS, TaskCall
from hotplate.serving.gateway.errors import TasksAway
from hotplate.serving.gateway.protocol.control_planes import ControlPlanes
from hotplate.serving.gateway.protocol.frames import LENGTH_BYTES, frame_head
from hotplate.serving.gateway.protocol.headers import TASK_ID
from hotplate.serving.gateway.protocol.priority import USUAL_PRIORITY
from hotplate.serving.gateway.tasks.result import TaskResult

TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=60)
HEARTBEAT_S = 5.0
AWAY = (aiohttp.ClientError, OSError, TimeoutError, asyncio.IncompleteReadError, ValueError)
"""What a call raises when the control plane does not respond, or not correctly."""


class NotWanted(Exception):
    """The task has ended or was cancelled, or another gateway has it."""


class ControlPlaneAway(Exception):
    """The control plane does not respond, or not correctly."""


class Frame(NamedTuple):
    """A frame that is being received."""

    head: bytes
    size_bytes: int
    """Bytes of its body."""
    body: AsyncIterator[bytes]


class TaskOffer(NamedTuple):
    """A task that waits for a gateway to run it."""

    id: str
    route: str
    lost: bool
    """Whether another gateway had started it and is gone."""
    organization: str = ""
    priority: int = USUAL_PRIORITY
    version: str = ""
    """The version to which it was submitted; empty = `main`, or there was no canary."""


class Submission(Protocol):
    """A task that is being submitted."""

    def begin_submission(self) -> bytes:
        """The beginning of the frame."""

    async def next_pieces(self) -> Sequence[bytes]:
        """The pieces of the body that have come since the last call; none = that was all."""


class ControlPlaneClient:
    """A client for one gateway process, which the control plane knows by its `id`."""

    def __init__(self, *, planes: ControlPlanes, token: str) -> None:
        self.id = secrets.token_hex(8)
        self._planes = planes
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}"},
            timeout=TIMEOUT,
            connector=aiohttp.TCPConnector(limit=0),
        )

    async def close(self) -> None:
        await self._session.close()

    @asynccontextmanager
    async def call(
        self, route: str, call: TaskCall, submission: Submission | None, **turn: str
    ) -> AsyncIterator[Frame]:
        """The control plane's response to a call of a task route, or of `DOCS`; `turn` is the
        organization, priority and version of a submitted task. Raises TasksAway."""
        params = {"route": route, "path": call.path, **turn}
        if call.task_id is not None:
            params["task_id"] = call.task_id
        path = DOCS if call.verb == DOCS else f"tasks/{call.verb}"
        body = None if submission is None else _frame_of(submission)
        try:
            async with self._post(path, params, body) as response:
                if response.status != 200:
                    raise TasksAway(await _why(route, response), retry_after_s=1)
                yield await _read_frame(response)
        except AWAY as error:
            message = f"{route}: tasks cannot be kept or looked up now, the control plane is away"
            raise TasksAway(f"{message}; try again.", retry_after_s=1) from error

    @asynccontextmanager
    async def start(self, task_id: str, route: str) -> AsyncIterator[Frame]:
        """Has the control plane record that the task runs here now; yields the request to send.
        Raises NotWanted, and ControlPlaneAway, also in the middle of the body."""
        try:
            async with self._post(f"tasks/{task_id}/start", {"gateway": self.id}) as response:
                if response.status in (404, 409):
                    raise NotWanted(await response.text())
                if response.status != 200:
                    raise ControlPlaneAway(await _why(route, response))
                head, size_bytes, body = await _read_frame(response)
                length = b"Content-Length: %d\r\n%b: %b\r\n\r\n"
                head += length % (size_bytes, TASK_ID, task_id.encode())
                yield Frame(head, size_bytes, body)
        except AWAY as error:
            raise ControlPlaneAway(f"the control plane is away ({error!r})") from error

    async def end(self, result: TaskResult) -> str:
        """Gives the control plane a task's result. Returns why that does not take it; empty = it
        has taken it. Raises ControlPlaneAway."""
        params = {"gateway": result.gateway, "note": result.note}
        try:
            async with self._post(
                f"tasks/{result.task_id}/end", params, result.pieces()
            ) as response:
                if response.status in (404, 409):
                    return "its result is no longer wanted"
                if response.status != 200:
                    raise ControlPlaneAway(await response.text())
                return ""
        except AWAY as error:
            raise ControlPlaneAway(repr(error)) from error

    async def listen(
        self,
        waiting: Sequence[str],
        offered: Callable[[TaskOffer], None],
        dropped: Callable[[str], None],
    ) -> None:
        """Receives, until the connection ends, the tasks to run and those that are no longer
        wanted; `waiting` wait here already. Raises what is in `AWAY`."""
        async with self._session.ws_connect(
            f"{self._planes.url}/internal/tasks/line",
            params={"gateway": self.id},
            heartbeat=HEARTBEAT_S,
            max_msg_size=0,
        ) as line:
            await line.send_json({"waiting": list(waiting)})
            async for message in line:
                if message.type is aiohttp.WSMsgType.TEXT:
                    message_data = message.json()
                    for offer in message_data["run"]:
                        offered(_offer(offer))
                    for task_id in message_data["drop"]:
                        dropped(task_id)

    @asynccontextmanager
    async def _post(
        self, path: str, params: Mapping[str, str], body: AsyncIterator[bytes] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        url = f"{self._planes.url}/internal/{path}"
        async with self._session.post(url, params=params, data=body) as response:
            yield response


def _offer(data: Mapping[str, Any]) -> TaskOffer:
    return TaskOffer(
        data["id"],
        data["route"],
        data["lost"],
        data.get("organization", ""),
        data.get("priority", USUAL_PRIORITY),
        data.get("version", ""),
    )


async def _frame_of(submission: Submission) -> AsyncIterator[bytes]:
    """The frame, in pieces as they come."""
    yield submission.begin_submission()
    while pieces := await submission.next_pieces():
        for piece in pieces:
            yield piece


async def _read_frame(response: aiohttp.ClientResponse) -> Frame:
    head = await frame_head(response.content.readexactly)
    if response.content_length is None:
        raise ValueError("a frame without Content-Length")
    size_bytes = response.content_length - LENGTH_BYTES - len(head)
    return Frame(head, size_bytes, response.content.iter_any())


async def _why(route: str, response: aiohttp.ClientResponse) -> str:
    """The control plane's own message, in a sentence."""
    message = await response.text()
    with contextlib.suppress(ValueError, KeyError, TypeError):
        message = (await response.json())["error"]["message"]
    return f"{route}: tasks cannot be kept or looked up now: {message}"
