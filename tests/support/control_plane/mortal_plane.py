"""A control plane that may die at any moment, and what outlives it.

The API over HTTP, the store, the blobs and the controller are real. The replicas and the gateway
are in memory, and outlive the control plane as they do in production.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp.test_utils import TestServer
from prometheus_client import CollectorRegistry

from hotplate.cache.manifest import Blob
from hotplate.cache.tarballs import archive
from hotplate.deploy.engine import ReplicaState
from hotplate.deploy.workload import Workload
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import make_app
from hotplate.platform.controller.loop import Controller
from hotplate.platform.controller.metrics import ControllerMetrics
from hotplate.platform.controller.planning.addresses import Addresses
from hotplate.platform.errors import NotFound
from hotplate.platform.leadership.election import TERM_S
from hotplate.platform.spec.code_files import READY
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Deployment, Kind, Term
from hotplate.serving.gateway.protocol.routes import RouteDemand
from tests.support.control_plane.cloud import Cloud, Refused
from tests.support.control_plane.controller_world import RULES, StandInGateway, config
from tests.support.control_plane.crashes import Life, MortalBlobs, MortalDatabase, MortalEngine
from tests.support.dead import Dead
from tests.support.patience import until

SOMEBODY = Term(holder="it", url="http://here:1", process="1 1@boot", place="here")
ROUTE = "acme/echo"
ROLLOUT = "/api/v1/hotplate/deployments/echo/rollout"

Work = Callable[["Plane"], Awaitable[None]]


class Gateway(StandInGateway):
    """It keeps its table and its requests while there is no control plane."""

    def routed(self) -> list[str]:
        route = self.route(ROUTE)
        return [r.id for r in route.replicas if not r.draining] if route else []


class Engine(MortalEngine):
    """Replicas of a broken revision cannot start, and those of a slow one take their time."""

    _hastened = False

    def hasten(self) -> None:
        """All are ready, and those that come from now on are so at once."""
        self._hastened = True
        for name, each in list(self.found.items()):
            if each.state is ReplicaState.STARTING:
                self.become(name, ReplicaState.READY)

    def _add(self, workload: Workload) -> None:
        broken = "BROKEN" in workload.env
        self.ready_at_once = not broken and (self._hastened or "SLOW" not in workload.env)
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

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        data: object = None,
        promise: str = "",
    ) -> None:
        """Repeats no answered request; one without an answer may be refused as done already.
        `promise` is what a request is known by, where its path is not enough."""
        promise = promise or path
        if promise in self.promised:
            return
        try:
            await self.cloud.call(method, path, body, data)
        except Refused as refused:
            if refused.status not in (404, 409):
                raise
        self.promised.add(promise)

    async def deploy(self, least: int = 1, bento: str = "echo:v1", name: str = "echo") -> None:
        body = {"name": name, "bento": bento, **config(least, 3)}
        await self.call("POST", "/api/v2/deployments", body)

    async def update(self, bento: str, **fields: Any) -> None:
        body = {"bento": bento, **config(1, 3), **fields}
        await self.call("PUT", "/api/v2/deployments/echo", body)

    async def roll(self, action: str, **fields: Any) -> None:
        body = {"action": action, **fields}
        await self.call("POST", ROLLOUT, body, promise=f"{ROLLOUT} {action}")

    async def deployment(self) -> Deployment:
        tenant = self.cloud.user.organization.id
        return await self.store.run(self.store.deployments.find, tenant, "echo")

    def shares(self) -> dict[str, float]:
        """The weights of its canary's versions, as the gateway has them."""
        route = self.gateway.route(ROUTE)
        return {share.id: share.weight for share in route.versions} if route else {}

    async def demand(self, demand: RouteDemand) -> None:
        self.gateway.demand = {ROUTE: demand}
        await self.gateway.report()

    async def serves(
        self, bento: str, replicas: int = 1, status: str = "running", services: int = 1
    ) -> bool:
        """Whether exactly so many replicas of this bento's revision run, and all is at rest."""
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
        """Whether the store has this version, with the content that was sent."""
        tenant = self.cloud.user.organization.id
        try:
            found = await self.store.run(self.store.artifacts.get, tenant, kind, name, version)
        except NotFound:
            return False
        if found.upload_status != "success":
            return False
        return content in b"".join(archive.pack(self.blobs.get_manifest(found.files), self.blobs))

    async def code_files(self) -> dict[str, str]:
        """The text of each file of the code space as it is kept."""
        deployment = await self.deployment()
        found = await self.store.run(self.store.code_files.of_deployment, deployment.id)
        return {file.path: self._text(Blob(file.size_bytes, file.chunks)) for file in found}

    async def runs(self, files: Mapping[str, str]) -> bool:
        """Whether the code space serves its latest revision, and that one has these files."""
        deployment = await self.deployment()
        if deployment.serving is None or deployment.serving.number != deployment.latest.number:
            return False
        entries = self.blobs.get_manifest(deployment.latest.bento.files).entries
        own = {e.path.removeprefix("src/"): e.blob for e in entries if e.path.startswith("src/")}
        texts = {path: self._text(blob) for path, blob in own.items() if blob is not None}
        return texts == {path: text for path, text in files.items() if path != READY}

    def _text(self, blob: Blob) -> str:
        return b"".join(self.blobs.chunks(blob)).decode()


@dataclass
class Installation:
    """The data, the replicas and the gateway, which outlive a control plane."""

    folder: Path
    engine: Engine | None = None
    gateway: Gateway = field(default_factory=Gateway)
    promised: set[str] = field(default_factory=set)

    def again(self, folder: Path) -> Installation:
        """A copy, in which a control plane may die."""
        shutil.copytree(self.folder, folder)
        gateway = copy(self.gateway)
        gateway.demand = dict(gateway.demand)
        return Installation(folder, self.engine, gateway)

    @property
    def leftovers(self) -> list[Path]:
        """Files of unfinished uploads; they may vanish, which `os.walk` survives, not `rglob`."""
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

    async def live(self, life: Life, work: Work, *, takes_over: bool = False) -> bool:
        """Runs a control plane until the work is done or it dies. Returns whether it is done. Its
        effects count from its term on if it `takes_over`, and else once it acts.

        The tasks of a dead one are dropped where they are, because they can write nothing more.
        """
        with suppress(Dead):
            store = Store(MortalDatabase(self.folder / "hotplate.db", life))
            try:
                return await self._live(life, store, work, takes_over)
            finally:
                store.close()
        return False

    async def _live(self, life: Life, store: Store, work: Work, takes_over: bool) -> bool:
        blobs = MortalBlobs(f"file://{self.folder}/blobs", life)
        engine = self.engine = Engine(life, self.engine)
        metrics = ControllerMetrics(CollectorRegistry())
        controller = Controller(store, engine, RULES, Addresses("127.0.0.1"), metrics)
        app = make_app(store, blobs, controller, ApiSettings())
        app.router.add_get("/internal/gateway", controller.gateways.handle)
        life.counted = takes_over
        store.database.epoch = store.leadership.take(store.leadership.look(), SOMEBODY, TERM_S)
        assert store.database.epoch, "nobody else takes it"
        life.spent("take the term")
        blobs.drop_unfinished()
        store.organizations.finish_deletions()
        async with TestServer(app) as server, Cloud(server, store, operator=True) as cloud:

            async def worked() -> None:
                await controller.ready.wait()
                await work(Plane(store, blobs, engine, self.gateway, cloud, self.promised))

            # One that came later than the first decisions would keep the count up for a minute.
            url = str(server.make_url("/internal/gateway"))
            connection = asyncio.create_task(self.gateway.run(url))
            await until(lambda: controller.gateways.connected)
            life.counted = True
            working = asyncio.create_task(worked())
            tasks = [
                working,
                asyncio.create_task(life.ended.wait()),
                asyncio.create_task(controller.run()),
                connection,
            ]
            await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if life.last:
            return False
        working.result()
        return True
