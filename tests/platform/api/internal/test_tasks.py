"""Tasks as the control plane keeps them: what callers are told, what gateways may do."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.bentocloud.auth import answer_errors
from hotplate.platform.api.internal.task_contents import ROW_BYTES
from hotplate.platform.api.internal.tasks import TaskRoutes
from hotplate.platform.controller.gateways.task_links import TaskLinks
from hotplate.platform.store.artifacts import ArtifactDraft
from hotplate.platform.store.deployments import RevisionDraft
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Deployment, Kind
from hotplate.serving.gateway.protocol.frames import frame_head, framed
from tests.support.patience import PATIENCE_S

LOST_S = 0.3
ROUTE = "acme/echo"
MAINS = {"organization": "", "priority": 3, "version": ""}
"""The turn of a task that says nothing of itself."""
HEAD = b"POST /toil HTTP/1.1\r\nHost: a\r\nX-Own: \xe9\r\n"
ANSWER = b"200 OK\r\nContent-Type: image/png\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"


class Desk:
    """The control plane's side of the tasks, and a gateway's calls of it."""

    def __init__(self, client: TestClient[web.Request, web.Application], tasks: TaskRoutes) -> None:
        self.client = client
        self.tasks = tasks

    async def call(self, verb: str, body: bytes = b"", **query: str) -> tuple[int, Any]:
        """What a caller is answered."""
        params = {"route": ROUTE, "path": "/toil", **query}
        async with self.client.post(
            f"/internal/tasks/{verb}", params=params, data=io.BytesIO(body)
        ) as answer:
            assert answer.status == 200, await answer.text()
            head = await frame_head(answer.content.readexactly)
            body = await answer.read()
        return int(head[:3]), json.loads(body) if b"json" in head else (head, body)

    async def submit(self, body: bytes = b"{}") -> str:
        status, said = await self.call("submit", framed(HEAD) + body)
        assert (status, said["status"]) == (200, "pending")
        task_id: str = said["task_id"]
        return task_id

    async def start(self, task_id: str, gateway: str = "g1") -> tuple[int, bytes]:
        url = f"/internal/tasks/{task_id}/start"
        async with self.client.post(url, params={"gateway": gateway}) as answer:
            return answer.status, await answer.read()

    async def end(
        self, task_id: str, body: bytes, gateway: str = "g1", head: bytes = ANSWER, note: str = ""
    ) -> int:
        url = f"/internal/tasks/{task_id}/end"
        params = {"gateway": gateway, "note": note}
        async with self.client.post(
            url, params=params, data=io.BytesIO(framed(head) + body)
        ) as answer:
            return answer.status

    async def line(self, gateway: str, *waiting: str) -> aiohttp.ClientWebSocketResponse:
        line = await self.client.ws_connect(f"/internal/tasks/line?gateway={gateway}")
        await line.send_json({"waiting": waiting})
        return line


@pytest.fixture
def deployment(store: Store) -> Deployment:
    user = store.identities.ensure_user("acme", "ada", "ada@example.com")
    store.artifacts.ensure_repository(user.organization.id, Kind.BENTO, "echo")
    bento = store.artifacts.create(user.organization.id, Kind.BENTO, "echo", ArtifactDraft("v1"))
    return store.deployments.create(user, "echo", RevisionDraft(bento.id, {"services": {}}))


@pytest.fixture
async def desk(store: Store, blobs: BlobStore, deployment: Deployment) -> AsyncIterator[Desk]:
    lines = TaskLinks(store.tasks, LOST_S)
    tasks = TaskRoutes(store.tasks, blobs, lines, results_s=0.05)
    app = web.Application(middlewares=[answer_errors])
    app.add_routes(tasks.routes())
    async with TestClient(TestServer(app)) as client:
        yield Desk(client, tasks)
        await lines.close()


async def test_a_gateway_that_leaves_before_it_says_what_waits_is_no_fault(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    line = await desk.client.ws_connect("/internal/tasks/line?gateway=g1")
    await line.close()
    task_id = await desk.submit()
    offered = await (await desk.line("g2")).receive_json()
    assert [one["id"] for one in offered["run"]] == [task_id]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("size_bytes", [2, ROW_BYTES + 1, 3 << 20], ids=["small", "large", "more"])
async def test_a_task_is_kept_whole_from_its_submission_to_its_result(
    desk: Desk, size_bytes: int
) -> None:
    sent, answered = bytes(size_bytes), b"\xff" * size_bytes
    task_id = await desk.submit(sent)
    status, told = await desk.call("status", task_id=task_id)
    assert (status, told["task_id"], told["executed_at"]) == (200, task_id, None)
    assert datetime.fromisoformat(told["created_at"]).tzinfo is not None

    assert await desk.start(task_id) == (200, framed(HEAD) + sent)
    _, told = await desk.call("status", task_id=task_id)
    assert told["status"] == "in_progress"
    assert told["executed_at"]

    assert await desk.end(task_id, answered) == 200
    _, told = await desk.call("status", task_id=task_id)
    assert told["status"] == "completed"
    assert await desk.call("get", task_id=task_id) == (200, (ANSWER, answered))

    _, again = await desk.call("retry", task_id=task_id)
    assert again["task_id"] != task_id
    assert await desk.start(again["task_id"]) == (200, framed(HEAD) + sent)


async def test_an_error_of_the_handler_is_the_result(desk: Desk) -> None:
    task_id = await desk.submit()
    await desk.start(task_id)
    head = b"400 Bad Request\r\nContent-Type: application/json\r\n"
    await desk.end(task_id, b'{"error": "no"}', head=head)
    assert (await desk.call("status", task_id=task_id))[1]["status"] == "failed"
    assert await desk.call("get", task_id=task_id) == (400, {"error": "no"})


@pytest.mark.parametrize("verb", ["status", "get", "cancel", "retry"])
async def test_a_task_that_nobody_knows_is_said_so_in_bentomls_words(
    desk: Desk, store: Store, verb: str
) -> None:
    assert await desk.call(verb) == (400, {"error": "task_id is required"})
    unknown = (404, {"error": "task_id not found"})
    assert await desk.call(verb, task_id="1\0" * 4) == unknown
    task_id = await desk.submit()
    assert await desk.call(verb, task_id=task_id, route="acme/other") == unknown


async def test_a_task_is_cancelled_while_it_waits_and_not_after(desk: Desk) -> None:
    waits, runs = await desk.submit(), await desk.submit()
    await desk.start(runs)
    status, told = await desk.call("cancel", task_id=waits)
    assert (status, told["status"]) == (200, "canceled")
    assert (await desk.start(waits))[0] == 409
    status, told = await desk.call("get", task_id=waits)
    assert (status, told["error"]) == (400, f"task {waits} was canceled")
    status, told = await desk.call("cancel", task_id=runs)
    assert status == 400
    assert "not supported" in told["error"]
    for verb in ("get", "retry"):
        status, told = await desk.call(verb, task_id=runs)
        assert (status, told["error"]) == (400, f"task {runs} is not completed yet")
    assert (await desk.call("retry", task_id=waits))[0] == 200


async def test_a_task_belongs_to_the_gateway_that_started_it_until_that_is_gone(
    desk: Desk, store: Store, deployment: Deployment
) -> None:
    task_id = await desk.submit()
    first, second = await desk.line("g1"), await desk.line("g2")
    for line in (first, second):
        assert (await line.receive_json())["run"] == [
            {"id": task_id, "route": ROUTE, "lost": False, **MAINS}
        ]
    assert (await desk.start(task_id, "g1"))[0] == 200
    while not (dropped := (await second.receive_json())["drop"]):
        pass  # all that is open is offered once more, a moment after the start
    assert dropped == [task_id]
    assert (await desk.start(task_id, "g2"))[0] == 409
    assert await desk.end(task_id, b"", "g2") == 409

    await first.close()
    async with asyncio.timeout(PATIENCE_S):
        assert (await second.receive_json())["run"] == [
            {"id": task_id, "route": ROUTE, "lost": True, **MAINS}
        ]
    head = b"502 Bad Gateway\r\nContent-Type: application/json\r\n"
    assert await desk.end(task_id, b"{}", "g2", head, note="the gateway ended") == 200
    assert store.history.events(deployment.id)[0].kind == "TaskLost"
    assert (await desk.call("status", task_id=task_id))[1]["status"] == "failed"
    assert await desk.end(task_id, b"late", "g1") == 409
    assert await desk.call("get", task_id=task_id) == (502, {})


async def test_whose_a_task_is_and_how_urgent_is_told_with_it_and_with_its_retry(
    desk: Desk,
) -> None:
    line = await desk.line("g1")
    turn = {"organization": "acme", "priority": "6", "version": "next"}
    _, said = await desk.call("submit", framed(HEAD) + b"{}", **turn)
    await desk.start(said["task_id"])
    assert await desk.end(said["task_id"], b"") == 200
    await desk.call("retry", task_id=said["task_id"])
    again = await desk.line("g2")
    for told in (await line.receive_json(), await again.receive_json()):
        [offer] = told["run"]
        assert (offer["organization"], offer["priority"], offer["version"]) == ("acme", 6, "next")


async def test_a_gateway_that_comes_back_is_told_what_is_wanted_no_more(desk: Desk) -> None:
    kept, cancelled = await desk.submit(), await desk.submit()
    await desk.call("cancel", task_id=cancelled)
    line = await desk.line("g1", kept, cancelled)
    told = await line.receive_json()
    assert [offer["id"] for offer in told["run"]] == [kept]
    assert told["drop"] == [cancelled]


async def test_results_go_after_their_time_and_with_their_deployment(
    desk: Desk, store: Store, blobs: BlobStore, deployment: Deployment
) -> None:
    ended, waits = await desk.submit(bytes(ROW_BYTES + 1)), await desk.submit(bytes(ROW_BYTES + 1))
    await desk.start(ended)
    await desk.end(ended, b"")
    await asyncio.sleep(0.06)
    await desk.tasks.sweep()
    assert (await desk.call("status", task_id=ended))[0] == 404
    assert blobs.parts(f"task-{ended}") == {}
    assert blobs.parts(f"task-{waits}")
    store.deployments.forget(deployment.id)
    await desk.tasks.sweep()
    assert blobs.parts(f"task-{waits}") == {}
    assert store.tasks.unfinished() == []


async def test_a_submission_that_breaks_off_is_no_task(desk: Desk, store: Store) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield framed(HEAD) + bytes(ROW_BYTES * 2)
        raise ConnectionResetError

    with pytest.raises((aiohttp.ClientError, ConnectionResetError)):
        await desk.client.post(
            "/internal/tasks/submit", params={"route": ROUTE, "path": "/toil"}, data=broken()
        )
    assert store.tasks.unfinished() == []
    assert (
        await desk.client.post("/internal/tasks/submit?route=a/b&path=/x", data=b"x")
    ).status == 400
