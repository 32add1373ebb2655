"""A server that is put under load: a route for each kind of traffic, and for some faults."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestServer

ORGANIZATION = "X-Organization"
EVENTS = 5
EVENT_PAUSE_S = 0.01
POLLS = 2
"""How often a task is asked for before it has its result."""


@dataclass
class LoadTarget:
    """What has arrived, and what a test changes."""

    url: str = ""
    arrived: Counter[str] = field(default_factory=Counter)
    """Requests by method and path."""
    posted: list[tuple[str, str]] = field(default_factory=list)
    """Organization and body of each."""
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    """`/held` waits for it."""
    connections: set[object] = field(default_factory=set)
    tokens: set[str | None] = field(default_factory=set)
    """Of the field `Authorization`."""
    polls: Counter[str] = field(default_factory=Counter)

    async def note(self, request: web.Request) -> str:
        """Counts the request, and returns its body."""
        self.arrived[f"{request.method} {request.path}"] += 1
        self.connections.add(request.transport)
        self.tokens.add(request.headers.get("Authorization"))
        body = (await request.read()).decode(errors="replace")
        if request.method == "POST":
            self.posted.append((request.headers.get(ORGANIZATION, ""), body))
        return body


@asynccontextmanager
async def load_target(tls: ssl.SSLContext | None = None) -> AsyncIterator[LoadTarget]:
    """Listening on a port of this machine."""
    target = LoadTarget()
    app = web.Application()
    app.add_routes(_routes(target))
    server = TestServer(app, scheme="https" if tls else "http")
    await server.start_server(ssl=tls)
    target.url = str(server.make_url("")).rstrip("/")
    try:
        yield target
    finally:
        target.answers.set()
        await server.close()


def _routes(target: LoadTarget) -> list[web.RouteDef]:
    async def echo(request: web.Request) -> web.Response:
        return web.json_response({"said": await target.note(request)})

    async def held(request: web.Request) -> web.Response:
        await target.note(request)
        await target.answers.wait()
        return web.json_response({})

    async def moved(request: web.Request) -> web.Response:
        await target.note(request)
        raise web.HTTPFound("/echo")

    async def closing(request: web.Request) -> web.Response:
        """Answers, and closes the connection at once without having said so."""
        await target.note(request)
        answer = web.json_response({})
        await answer.prepare(request)
        await answer.write_eof()
        assert request.transport is not None
        request.transport.close()
        return answer

    async def stream(request: web.Request) -> web.StreamResponse:
        chats = '"messages"' in await target.note(request)
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        for number in range(EVENTS):
            chunk = {"choices": [{"delta": {"content": f"word {number}"}}]}
            data = json.dumps(chunk) if chats else f"event {number}"
            await answer.write(f": a comment\r\n\r\ndata: {data}\r\n\r\n".encode())
            await asyncio.sleep(EVENT_PAUSE_S)
        if chats:
            await answer.write(b"data: [DONE]\n\n")
        return answer

    async def cut(request: web.Request) -> web.StreamResponse:
        """A stream that breaks off after its second event."""
        await target.note(request)
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write(b"data: 1\n\ndata: 2\n\n")
        assert request.transport is not None
        request.transport.close()
        return answer

    async def submit(request: web.Request) -> web.Response:
        await target.note(request)
        task_id = str(target.arrived[f"POST {request.path}"])
        return web.json_response({"task_id": task_id, "status": "in_progress"})

    async def status(request: web.Request) -> web.Response:
        await target.note(request)
        task_id = request.query["task_id"]
        target.polls[task_id] += 1
        done = target.polls[task_id] > POLLS
        return web.json_response({"status": "completed" if done else "in_progress"})

    async def result(request: web.Request) -> web.Response:
        await target.note(request)
        return web.json_response({"result": request.query["task_id"]})

    async def socket(request: web.Request) -> web.WebSocketResponse:
        await target.note(request)
        answer = web.WebSocketResponse()
        await answer.prepare(request)
        async for message in answer:
            if message.type is WSMsgType.TEXT:
                target.posted.append((request.headers.get(ORGANIZATION, ""), message.data))
                await answer.send_str(message.data.upper())
        return answer

    return [
        web.post("/echo", echo),
        web.get("/echo", echo),
        web.post("/held", held),
        web.post("/moved", moved),
        web.post("/closing", closing),
        web.post("/stream", stream),
        web.get("/stream", socket),
        web.post("/cut", cut),
        web.post("/stream/submit", submit),
        web.get("/stream/status", status),
        web.get("/stream/get", result),
    ]
