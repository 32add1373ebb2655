"""An API server over a cluster in memory: what an engine asks of one, on a port of this machine."""

from __future__ import annotations

import asyncio
import copy
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import aiohttp
from aiohttp import web

from hotplate.deploy.cluster.api import APPLY, ClusterApi
from hotplate.deploy.cluster.kinds import KINDS, ObjectKind, Ref, ref_of
from hotplate.deploy.cluster.objects import Manifest
from tests.support.deploy.cluster import ClusterInMemory
from tests.support.deploy.cluster_jobs import ClusterWithJobs

_PATH = re.compile(
    r"(?P<group>/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<part>[^/]+))?"
)
READS = ("GET",)


class ClusterServer:
    """Refuses what it is told to, and forgets what happened before."""

    def __init__(self, cluster: ClusterInMemory) -> None:
        self.cluster = cluster
        self.reads: list[str] = []
        """Path of each object that was asked for."""
        self.writes: list[str] = []
        """Method and path of each."""
        self.statuses: list[int] = []
        """With these the next writes are refused."""
        self.before_write: Callable[[], bool] = lambda: True
        """Whether the next one is answered; else whoever asks waits for ever, and nothing is
        written."""
        self.after_write: Callable[[], bool] = lambda: True
        """The same, when it has been written."""
        self._oldest = 0
        self._watches: set[asyncio.Task[Any]] = set()
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ClusterServer]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        try:
            yield self
        finally:
            await runner.cleanup()

    def api(self) -> ClusterApi:
        return ClusterApi(_Connection(self.url))

    def forget(self) -> None:
        """What has happened so far can no longer be followed; who does is told so."""
        self._oldest = self.cluster.version + 1
        self.cut()

    def cut(self) -> None:
        """End all watches."""
        for task in self._watches:
            task.cancel()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        found = _PATH.fullmatch(request.path)
        assert found is not None, request.path
        kind = next(
            each
            for each in KINDS.values()
            if (each.group, each.plural) == (found["group"], found["plural"])
        )
        namespace, name = found["namespace"] or "", found["name"] or ""
        if request.method not in READS:
            return await self._write(request, Ref(kind.name, namespace, name), found["part"] or "")
        if found["part"] == "log":
            return await self._log(request, name)
        if name:
            self.reads.append(request.path)
            seen = self.cluster.objects.get(Ref(kind.name, namespace, name))
            return _refused(404, "not found") if seen is None else web.json_response(seen)
        if "watch" in request.query:
            return await self._watch(request, kind, namespace)
        items = [each for ref, each in self.cluster.objects.items() if _is_in(ref, kind, namespace)]
        metadata = {"resourceVersion": str(self.cluster.version)}
        return web.json_response({"metadata": metadata, "items": items})

    async def _write(self, request: web.Request, ref: Ref, part: str) -> web.Response:
        self.writes.append(f"{request.method} {request.path}")
        if self.statuses:
            return _refused(self.statuses.pop(0), "it was told to refuse")
        if not self.before_write():
            await asyncio.Event().wait()
        answer = self._written(request, ref, part, json.loads(await request.text()))
        if not self.after_write():
            await asyncio.Event().wait()
        return answer

    def _written(self, request: web.Request, ref: Ref, part: str, body: Manifest) -> web.Response:
        cluster, seen = self.cluster, self.cluster.objects.get(ref)
        if request.method == "POST":
            ref = ref_of(body)
            if ref in cluster.objects:
                return _refused(409, "it already exists")
            cluster.put(body)
            return web.json_response(cluster.objects[ref])
        if request.content_type == APPLY:
            cluster.put(body)
            return web.json_response(cluster.objects[ref])
        if seen is None:
            return _refused(404, "not found")
        if part == "scale":
            if seen["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
                return _refused(409, "the object has been modified")
            cluster.scale(ref, body["spec"]["replicas"])
        elif request.method == "DELETE":
            if seen["metadata"]["uid"] != body["preconditions"]["uid"]:
                return _refused(409, "Precondition failed: UID")
            cluster.delete(ref)
        elif "finalizers" in body["metadata"]:
            cluster.release(ref)
        else:
            cluster.annotate(ref, body["metadata"]["annotations"])
        return web.json_response({})

    async def _log(self, request: web.Request, name: str) -> web.StreamResponse:
        """Of a pod that has one; all others say the same."""
        if not isinstance(self.cluster, ClusterWithJobs):
            before = "previous" in request.query
            return web.Response(text="it has ended\n" if before else "it serves\n")
        log = self.cluster.logs.get(name)
        if log is None:
            return _refused(404, "not found")
        response = web.StreamResponse()
        await response.prepare(request)
        with self._cut_at_once():
            given = 0
            while True:
                for line in log.lines[given:]:
                    if line.partition(" ")[0] >= request.query.get("sinceTime", ""):
                        await response.write(f"{line}\n".encode())
                given = len(log.lines)
                if log.ended:
                    break
                await log.has_changed.wait()
        return response

    async def _watch(
        self, request: web.Request, kind: ObjectKind, namespace: str
    ) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        if since < self._oldest - 1:
            return _refused(410, "too old resource version")
        response = web.StreamResponse()
        await response.prepare(request)
        with self._cut_at_once():
            while True:
                for each in self.cluster.happened[since:]:
                    if _is_in(each.ref, kind, namespace):
                        event = {"type": each.what, "object": each.seen}
                        await response.write(json.dumps(event).encode() + b"\n")
                since = self.cluster.version
                await self.cluster.changed(since)
        return response

    @contextmanager
    def _cut_at_once(self) -> Iterator[None]:
        """What is within ends with all watches."""
        task = asyncio.current_task()
        assert task is not None
        self._watches.add(task)
        try:
            with suppress(asyncio.CancelledError):
                yield
        finally:
            self._watches.discard(task)


def _is_in(ref: Ref, kind: ObjectKind, namespace: str) -> bool:
    return ref.kind == kind.name and namespace in ("", ref.namespace)


def _refused(status: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "message": message}, status=status)


class _Connection:
    """As much of `kubernetes.aio`'s `ApiClient` as is asked of one."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._http = aiohttp.ClientSession()

    async def param_serialize(self, method: str, path: str, **asked: Any) -> tuple[Any, ...]:
        query = f"?{urlencode(asked['query_params'])}"
        return method, f"{self._url}{path}{query}", asked["header_params"], asked["body"]

    async def call_api(
        self, method: str, url: str, headers: dict[str, str], body: object, **limits: Any
    ) -> SimpleNamespace:
        data = None if body is None else json.dumps(copy.deepcopy(body))
        timeout = aiohttp.ClientTimeout(limits["_request_timeout"])
        sent = await self._http.request(method, url, headers=headers, data=data, timeout=timeout)
        return SimpleNamespace(response=sent)

    async def close(self) -> None:
        await self._http.close()
