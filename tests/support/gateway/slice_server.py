"""The API server's list and watch of EndpointSlices, in a test's hands."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.support.certificates import issue
from tests.support.ports import free_port

NAMESPACE, SERVICE = "hotplate-t-acme", "h-chat-1-echo"
TOKEN = "of-the-account"


def endpoint(pod: str, host: str, *, uid: str = "", **conditions: bool) -> dict[str, Any]:
    target = {"kind": "Pod", "name": pod, "namespace": NAMESPACE, "uid": uid or f"uid-{pod}"}
    return {"addresses": [host], "conditions": conditions, "targetRef": target}


class SliceServer:
    """One slice of one Service. It says what changes, forgets what was before, and breaks off."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.account = folder / "account"
        self.account.mkdir()
        certificate, key = issue(folder, "api-server")
        (self.account / "ca.crt").write_bytes(certificate.read_bytes())
        (self.account / "token").write_text(f"{TOKEN}\n")
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(certificate, key)
        self.lists = self.watches = 0
        """How often they were asked for."""
        self.statuses: list[int] = []
        """With these the next requests are refused."""
        self._version = 100
        self._oldest = 0
        self._slice: dict[str, Any] = {}
        self._watching: set[asyncio.Queue[str | None]] = set()
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Starts, or starts again on the same port."""
        app = web.Application()
        app.router.add_get("/apis/discovery.k8s.io/v1/endpointslices", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self._tls).start()

    async def stop(self) -> None:
        self.cut()
        if self._runner is not None:
            await self._runner.cleanup()

    def put(self, port: int, *endpoints: dict[str, Any]) -> None:
        """These are the Service's pods from now on."""
        self._version += 1
        labels = {"kubernetes.io/service-name": SERVICE, "app.kubernetes.io/part-of": "hotplate"}
        metadata = {"name": f"{SERVICE}-x", "namespace": NAMESPACE, "labels": labels}
        metadata["resourceVersion"] = str(self._version)
        ports = [{"name": "metrics", "port": 1}, {"name": "http", "port": port}]
        self._slice = {"metadata": metadata, "ports": ports, "endpoints": list(endpoints)}
        self._say("MODIFIED", self._slice)

    def bookmark(self) -> None:
        self._version += 1
        self._say("BOOKMARK", {"metadata": {"resourceVersion": str(self._version)}})

    def forget(self) -> None:
        """What has happened so far is no longer known; who watches is told so."""
        self._oldest = self._version + 1
        self._say("ERROR", {"code": 410, "message": "too old resource version"})

    def cut(self) -> None:
        """Ends all watches."""
        for queue in self._watching:
            queue.put_nowait(None)

    def _say(self, kind: str, item: dict[str, Any]) -> None:
        for queue in self._watching:
            queue.put_nowait(json.dumps({"type": kind, "object": item}) + "\n")

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        assert request.query["labelSelector"] == "app.kubernetes.io/part-of=hotplate"
        if self.statuses:
            return web.Response(status=self.statuses.pop(0))
        if "watch" not in request.query:
            self.lists += 1
            items = [self._slice] if self._slice else []
            metadata = {"resourceVersion": str(self._version)}
            return web.json_response({"metadata": metadata, "items": items})
        if int(request.query["resourceVersion"]) < self._oldest - 1:
            return web.Response(status=410)
        self.watches += 1
        return await self._stream(request)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        if int(request.query["resourceVersion"]) < self._version and self._slice:
            queue.put_nowait(json.dumps({"type": "MODIFIED", "object": self._slice}) + "\n")
        self._watching.add(queue)
        try:
            while (line := await queue.get()) is not None:
                await response.write(line.encode())
        finally:
            self._watching.discard(queue)
        return response
