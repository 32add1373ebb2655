"""The control plane dies after every single thing that it writes or starts; the next one goes on.

Real are the API over HTTP, the store, the blobs and the controller; in memory are the replicas
and the gateway, which outlive it as they do in life.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp.test_utils import TestServer
from prometheus_client import CollectorRegistry

from hotplate.cache.tarballs import archive
from hotplate.deploy.engine import ReplicaState
from hotplate.deploy.workload import Workload
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import make_app
from hotplate.platform.controller.loop import Controller
from hotplate.platform.controller.metrics import ControllerMetrics
from hotplate.platform.controller.planning.routing import Addresses
from hotplate.platform.errors import NotFound
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Kind
from hotplate.serving.gateway.protocol.routes import RouteDemand
from tests.support.control_plane.cloud import MANIFEST, Cloud, Refused, put, tar_of, versions
from tests.support.control_plane.controller_world import RULES, StandInGateway, config
from tests.support.control_plane.crashes import (
    Dead,
    Life,
    MortalBlobs,
    MortalDatabase,
    MortalEngine,
)
from tests.support.patience import until

ONE_SLOT = {"traffic": {"concurrency": 1}}
PAIR = {
    **MANIFEST,
    "services": [
        {"name": "Echo", "config": ONE_SLOT, "dependencies": [{"service": "Back"}]},
        {"name": "Back", "config": ONE_SLOT},
    ],
}
BENTO_YAML = b"name: echo\nversion: v3\n"
WEIGHTS = bytes(range(256)) * 12
MODEL_TAR = tar_of({"model.yaml": "name: bert\nversion: '1'\n", "weights": WEIGHTS})
ROUTE = "acme/echo"


Work = Callable[["Plane"], Awaitable[None]]


class Gateway(StandInGateway):
    """Goes on with its table and its requests while no control plane is there."""

    def routed(self) -> list[str]:
        route = self.route(ROUTE)
        return [r.id for r in route.replicas if not r.draining] if route else []


class Engine(MortalEngine):
    """A replica of a revision that is broken cannot start."""

    def _add(self, workload: Workload) -> None:
        broken = "BROKEN" in workload.env
        self.ready_at_once = not broken
        super()._add(workload)
        if broken:
            self.become(list(self.found)[-1], ReplicaState.FAILED, "no such package: nope")


@dataclass
class Plane:
    """One life of the control plane."""

    store: Store
    blobs: MortalBlobs
    engine: Engine
    gateway: Gateway
    cloud: Cloud
    promised: set[str]
    """What was answered to the user, in this life or an earlier one."""

    async def call(self, method: str, path: str, body: object = None, data: object = None) -> None:
        """What was answered is not asked again; what was not may be refused as done already."""
        if path in self.promised:
            return
        try:
            await self.cloud.call(method, path, body, data)
        except Refused as refused:
            if refused.status not in (404, 409):
                raise
        self.promised.add(path)

    async def deploy(self, least: int = 1, bento: str = "echo:v1", name: str = "echo") -> None:
        body = {"name": name, "bento": bento, **config(least, 3)}
        await self.call("POST", "/api/v2/deployments", body)

    async def update(self, bento: str, **fields: Any) -> None:
        body = {"bento": bento, **config(1, 3), **fields}
        await self.call("PUT", "/api/v2/deployments/echo", body)

    async def demand(self, demand: RouteDemand) -> None:
        self.gateway.demand = {ROUTE: demand}
        await self.gateway.report()

    async def serves(
        self, bento: str, replicas: int = 1, status: str = "running", services: int = 1
    ) -> bool:
        """Whether all is at rest with so many replicas of this bento's revision, and no others."""
        found = self.engine.replicas()
        entry = sorted(r.id for r in found if r.key.service == "Echo")
        if (
            len(entry) != replicas
            or len(found) != replicas * services
            or sorted(self.gateway.routed()) != entry
        ):
            return False
        tenant = self.cloud.user.organization.id
        rows = await self.store.run(self.store.deployments.of_organization, tenant)
        serving = [d.serving for d in rows if d.status == status and d.serving]
        return [revision.bento.version for revision in serving] == [bento] and {
            r.key.revision for r in found
        } <= {serving[0].number}

    async def holds(self, kind: Kind, name: str, version: str, content: bytes) -> bool:
        """Whether the version is there, with what was sent."""
        tenant = self.cloud.user.organization.id
        try:
            found = await self.store.run(self.store.artifacts.get, tenant, kind, name, version)
        except NotFound:
            return False
        if found.upload_status != "success":
            return False
        return content in b"".join(archive.pack(self.blobs.get_manifest(found.files), self.blobs))


@dataclass
class Installation:
    """What outlives a control plane."""

    folder: Path
    engine: Engine | None = None
    gateway: Gateway = field(default_factory=Gateway)
    promised: set[str] = field(default_factory=set)

    def again(self, folder: Path) -> Installation:
        """The same once more, to be harmed."""
        shutil.copytree(self.folder, folder)
        gateway = copy(self.gateway)
        gateway.demand = dict(gateway.demand)
        return Installation(folder, self.engine, gateway)

    @property
    def leftovers(self) -> list[Path]:
        """Files of uploads under way, while they may go: `os.walk` does not mind, `rglob` does."""
        blobs = self.folder / "blobs"
        return [
            Path(folder, entry)
            for name in ("incoming", "parts")
            for folder, folders, files in os.walk(blobs / name)
            for entry in (*folders, *files)
        ]

    async def is_cleaned(self, _: Plane) -> None:
        async def clean() -> bool:
            return not self.leftovers

        await until(clean)

    async def live(self, life: Life, work: Work) -> bool:
        """Run a control plane on all this until the work is done, or it dies; whether it is done.

        Its tasks are dropped where they are: when it is dead they can write nothing more.
        """
        with suppress(Dead):
            store = Store(MortalDatabase(self.folder / "hotplate.db", life))
            try:
                return await self._live(life, store, work)
            finally:
                store.close()
        return False

    async def _live(self, life: Life, store: Store, work: Work) -> bool:
        blobs = MortalBlobs(f"file://{self.folder}/blobs", life)
        engine = self.engine = Engine(life, self.engine)
        metrics = ControllerMetrics(CollectorRegistry())
        controller = Controller(store, engine, RULES, Addresses("127.0.0.1"), metrics)
        app = make_app(store, blobs, controller, ApiSettings())
        app.router.add_get("/internal/gateway", controller.gateways.handle)
        blobs.drop_unfinished()
        async with TestServer(app) as server, Cloud(server, store) as cloud:

            async def worked() -> None:
                await controller.ready.wait()
                await work(Plane(store, blobs, engine, self.gateway, cloud, self.promised))

            life.counted = True
            working = asyncio.create_task(worked())
            tasks = [
                working,
                asyncio.create_task(life.ended.wait()),
                asyncio.create_task(controller.run()),
                asyncio.create_task(self.gateway.run(str(server.make_url("/internal/gateway")))),
            ]
            await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if life.last:
            return False
        working.result()
        return True


async def nothing(_: Plane) -> None:
    pass


@dataclass(frozen=True)
class Operation:
    """What a user or the load does, from where, and where it must end whatever happens."""

    name: str
    least: int
    """At least so many moments of death are in it."""
    act: Work
    rests: Callable[[Plane], Awaitable[bool]]
    before: Work = nothing


async def pushed(plane: Plane) -> None:
    for version in ("v1", "v2"):
        await plane.cloud.push_bento(version=version)


async def running(plane: Plane) -> None:
    await pushed(plane)
    await plane.deploy()
    await until(lambda: plane.serves("v1"))


async def asleep(plane: Plane) -> None:
    await pushed(plane)
    await plane.deploy(least=0)
    await until(lambda: plane.serves("v1", replicas=0, status="scaled-to-zero"))


async def busy(plane: Plane) -> None:
    await asleep(plane)
    await plane.demand(RouteDemand(in_flight=1, queued=2, service_s=60))
    await until(lambda: plane.serves("v1", replicas=3))


async def drain(plane: Plane) -> None:
    """All but one replica are idle; the last one becomes so when the others are gone."""
    last = sorted(plane.engine.found)[:1]
    await plane.demand(RouteDemand(in_flight=1, busy=dict.fromkeys(last, 1)))

    async def drained() -> bool:
        return list(plane.engine.found) in (last, [])

    await until(drained)
    await plane.demand(RouteDemand())


async def push_bento(plane: Plane) -> None:
    tar = tar_of({"bento.yaml": BENTO_YAML})
    await plane.cloud.register("bento", "echo", "v3")
    await plane.call("PATCH", f"{versions('bento', 'echo')}/v3/start_upload")
    await plane.call("PUT", f"{versions('bento', 'echo')}/v3/upload", data=tar)


async def push_in_parts(plane: Plane) -> None:
    one = f"{versions('model', 'bert')}/1"
    registered = await plane.cloud.register("model", "bert", "1")
    if registered["upload_status"] == "success":  # the stock client looks too
        return
    if f"{one}/complete_multipart_upload" not in plane.promised:
        upload, parts = await plane.cloud.send_parts(one, [MODEL_TAR[:4000], MODEL_TAR[4000:]])
        body = {"upload_id": upload, "parts": parts}
        await plane.call("PATCH", f"{one}/complete_multipart_upload", body)
    await plane.call("PATCH", f"{one}/finish_upload", {"status": "success", "reason": ""})


async def push_signed(plane: Plane) -> None:
    one = f"{versions('model', 'bert')}/1"
    registered = await plane.cloud.register("model", "bert", "1")
    if registered["upload_status"] == "success":  # the stock client looks too
        return
    await plane.call("PATCH", f"{one}/start_upload")
    signed = await plane.cloud.call("PATCH", f"{one}/presign_upload_url")
    await put(signed["presigned_upload_url"], MODEL_TAR)
    await plane.call("PATCH", f"{one}/finish_upload", {"status": "success", "reason": ""})


async def pair_pushed(plane: Plane) -> None:
    await plane.cloud.push_bento(version="v4", manifest=PAIR | {"version": "v4"})


async def replace(plane: Plane) -> None:
    await plane.call("DELETE", ONE_ECHO)
    await plane.deploy(bento="echo:v2")


async def terminate_and_update(plane: Plane) -> None:
    await plane.call("POST", "/api/v2/deployments/echo/terminate")
    await plane.update("echo:v2")


BROKEN = [{"name": "BROKEN", "value": "yes"}]
ONE_ECHO = "/api/v2/deployments/echo"
OPERATIONS = [
    Operation("create", 12, lambda p: p.deploy(), lambda p: p.serves("v1"), pushed),
    Operation("update", 14, lambda p: p.update("echo:v2"), lambda p: p.serves("v2"), running),
    Operation(
        "update that fails",
        13,
        lambda p: p.update("echo:v2", envs=BROKEN),
        lambda p: p.serves("v1", status="failed"),
        running,
    ),
    Operation("terminate, update", 18, terminate_and_update, lambda p: p.serves("v2"), running),
    Operation("delete, deploy", 21, replace, lambda p: p.serves("v2"), running),
    Operation(
        "two services",
        14,
        lambda p: p.deploy(bento="echo:v4"),
        lambda p: p.serves("v4", services=2),
        pair_pushed,
    ),
    Operation(
        "scale up",
        16,
        lambda p: p.demand(RouteDemand(in_flight=1, queued=2, service_s=60)),
        lambda p: p.serves("v1", replicas=3),
        asleep,
    ),
    Operation(
        "drain", 14, drain, lambda p: p.serves("v1", replicas=0, status="scaled-to-zero"), busy
    ),
    Operation(
        "upload",
        14,
        push_bento,
        lambda p: p.holds(Kind.BENTO, "echo", "v3", BENTO_YAML),
    ),
    Operation(
        "upload in parts", 18, push_in_parts, lambda p: p.holds(Kind.MODEL, "bert", "1", WEIGHTS)
    ),
    Operation(
        "upload to a link", 16, push_signed, lambda p: p.holds(Kind.MODEL, "bert", "1", WEIGHTS)
    ),
]


async def deaths(folder: Path, operation: Operation, left_out: int = 0) -> int:
    """Dies at every moment of the operation, but for each `left_out`-th one; how often it died.

    Raises AssertionError where the next life does not put right what was left.
    """
    installed = Installation(folder / "before")
    installed.folder.mkdir()
    assert await installed.live(Life(), operation.before)
    died = 0
    for effects in itertools.count(1):
        if left_out and effects % left_out == 0:
            continue
        harmed = installed.again(folder / f"{effects}")
        life = Life(effects)
        if await harmed.live(life, lambda plane: done(plane, operation)):
            break
        died += 1
        try:
            assert await harmed.live(Life(), lambda plane: done(plane, operation))
            if harmed.leftovers:  # of the life that ended: the next one that starts removes them
                assert await harmed.live(Life(), harmed.is_cleaned)
        except (AssertionError, TimeoutError) as error:
            raise AssertionError(f"dead after {life.last}, its effect {effects}") from error
    return died


async def done(plane: Plane, operation: Operation) -> None:
    await operation.act(plane)
    await until(lambda: operation.rests(plane))
