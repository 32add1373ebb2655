"""The control plane's end of the tasks, in a test's hands: it keeps them in memory."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from hotplate.serving.gateway.protocol.frames import frame_head, framed
from tests.support.ports import free_port


@dataclass
class Kept:
    """One task."""

    head: bytes
    body: bytes
    status: str = "pending"
    gateway: str = ""
    answer: bytes = b""
    """A frame."""
    note: str = ""
    turn: dict[str, Any] = field(default_factory=dict)
    """Whose it is, as its submission said."""
    ends: int = 0
    """How often its end was told and taken."""


@dataclass
class TaskKeeper:
    """Serves `/internal/tasks/` on one port; `away` has it answer 503 to everything but lines."""

    token: str = "gateway-token"
    port: int = field(default_factory=free_port)
    tasks: dict[str, Kept] = field(default_factory=dict)
    calls: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    away: bool = False
    chunked: bool = False
    """Whether responses to calls come without their length."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._lines: set[web.WebSocketResponse] = set()
        app = web.Application(client_max_size=1 << 30)
        app.add_routes(
            [
                web.get("/internal/tasks/line", self._line),
                web.post("/internal/docs", self._docs),
                web.post("/internal/tasks/submit", self._submit),
                web.post("/internal/tasks/{verb:status|get|cancel|retry}", self._call),
                web.post("/internal/tasks/{id}/start", self._start),
                web.post("/internal/tasks/{id}/end", self._end),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def stop(self) -> None:
        for line in list(self._lines):
            await line.close()
        await self._runner.cleanup()

    async def offer(self, task_id: str, route: str, *, lost: bool = False) -> None:
        offer = {"id": task_id, "route": route, "lost": lost}
        if task_id in self.tasks:
            offer |= self.tasks[task_id].turn
        await self.tell({"run": [offer], "drop": []})

    async def drop(self, task_id: str) -> None:
        await self.tell({"run": [], "drop": [task_id]})

    async def tell(self, message: dict[str, Any]) -> None:
        for line in self._lines:
            await line.send_json(message)

    @property
    def lines(self) -> int:
        return len(self._lines)

    async def _line(self, request: web.Request) -> web.StreamResponse:
        assert request.headers["Authorization"] == f"Bearer {self.token}"
        line = web.WebSocketResponse()
        await line.prepare(request)
        await line.receive_json()
        self._lines.add(line)
        offers = [
            {"id": task_id, "route": "acme/echo", "lost": False} | kept.turn
            for task_id, kept in self.tasks.items()
            if kept.status == "pending"
        ]
        await line.send_json({"run": offers, "drop": []})
        try:
            async for _ in line:
                pass
        finally:
            self._lines.discard(line)
        return line

    async def _submit(self, request: web.Request) -> web.Response:
        if self.away:
            return self._no()
        try:
            head = await frame_head(request.content.readexactly)
            body = await request.content.read()
        except (OSError, EOFError, web.RequestPayloadError):
            return self._no()
        task_id = f"{len(self.tasks):032x}"
        said = request.query
        turn: dict[str, Any] = {"organization": said["organization"]}
        turn |= {"priority": int(said["priority"]), "version": said.get("version", "")}
        self.tasks[task_id] = Kept(head, body, turn=turn)
        await self.offer(task_id, request.query["route"])
        return self._said({"task_id": task_id, "status": "pending"})

    async def _call(self, request: web.Request) -> web.Response:
        if self.away:
            return self._no()
        self.calls.append((request.match_info["verb"], dict(request.query)))
        kept = self.tasks.get(request.query.get("task_id", ""))
        if kept is not None and kept.answer:
            return web.Response(body=kept.answer)
        answer = self._said({"called": request.match_info["verb"]})
        if self.chunked:
            answer.enable_chunked_encoding()
        return answer

    async def _docs(self, request: web.Request) -> web.Response:
        if self.away:
            return self._no()
        return self._said({"docs": request.query["path"]})

    async def _start(self, request: web.Request) -> web.Response:
        kept = self.tasks[request.match_info["id"]]
        if self.away:
            return self._no()
        if kept.status not in ("pending", "in_progress"):
            return web.Response(status=409)
        kept.status, kept.gateway = "in_progress", request.query["gateway"]
        return web.Response(body=framed(kept.head) + kept.body)

    async def _end(self, request: web.Request) -> web.Response:
        if self.away:
            return self._no()
        kept = self.tasks[request.match_info["id"]]
        if kept.status != "in_progress" or request.query["gateway"] not in ("", kept.gateway):
            return web.Response(status=409)
        kept.answer, kept.note = await request.read(), request.query["note"]
        kept.status = "ended"
        kept.ends += 1
        return web.json_response({})

    def _no(self) -> web.Response:
        return web.json_response({"error": {"code": "no", "message": "not now"}}, status=503)

    def _said(self, said: dict[str, Any]) -> web.Response:
        head = b"200 OK\r\nContent-Type: application/json\r\n"
        return web.Response(body=framed(head) + json.dumps(said).encode())


async def closed(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})
