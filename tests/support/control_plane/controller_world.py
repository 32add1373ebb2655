"""A controller with a store, replicas in memory and a gateway that says what a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientSession, WSMsgType, web
from aiohttp.test_utils import TestServer
from prometheus_client import CollectorRegistry

from hotplate.autoscaler.bentoml_policy import policy_from
from hotplate.deploy.quantities import GIB
from hotplate.deploy.workload import Resources
from hotplate.platform.controller.deployment_state import DeploymentState
from hotplate.platform.controller.loop import Controller
from hotplate.platform.controller.metrics import ControllerMetrics
from hotplate.platform.controller.planning.addresses import Addresses
from hotplate.platform.controller.planning.ceiling import Ceiling
from hotplate.platform.controller.planning.workloads import WorkloadRules
from hotplate.platform.controller.scaling.prometheus import Prometheus
from hotplate.platform.store.artifacts import ArtifactDraft
from hotplate.platform.store.deployments import RevisionDraft
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Deployment, Kind
from hotplate.serving.gateway.protocol.routes import DemandReport, Route, RouteDemand, RouteTable
from tests.support.control_plane.fake_engine import FakeEngine
from tests.support.patience import until

MANIFEST = {
    "entry_service": "Echo",
    "services": [{"name": "Echo", "config": {"traffic": {"concurrency": 1}}}],
    "schema": {"routes": []},
}
RULES = WorkloadRules(
    resources=lambda config: Resources(),
    policy=policy_from,
    instance_types={},
    ceiling=Ceiling(Resources(8, 16 * GIB)),
)


class StandInGateway:
    """Keeps the last table; says of demand what the test wants."""

    def __init__(self) -> None:
        self.table = RouteTable(0)
        self.demand: dict[str, RouteDemand] = {}
        self._socket: Any = None

    async def run(self, url: str) -> None:
        async with ClientSession() as session, session.ws_connect(url) as self._socket:
            await self.report()
            async for message in self._socket:
                if message.type is WSMsgType.TEXT:
                    self.table = RouteTable.from_json(message.json())
                    await self.report()

    async def report(self, **demand: RouteDemand) -> None:
        self.demand |= {name.replace("__", "/"): d for name, d in demand.items()}
        report = DemandReport(self.table.version, self.demand)
        await self._socket.send_json(report.to_json(asyncio.get_running_loop().time()))

    async def leave(self) -> None:
        await self._socket.close()

    def route(self, name: str = "default/echo") -> Route | None:
        return next((route for route in self.table.routes if route.name == name), None)

    def routed(self) -> list[str]:
        route = self.route()
        return [r.id for r in route.replicas if not r.draining] if route else []


class World:
    def __init__(
        self,
        store: Store,
        engine: FakeEngine,
        prometheus: Prometheus | None = None,
        rules: WorkloadRules = RULES,
    ) -> None:
        self.store = store
        self.engine = engine
        self.gateway = StandInGateway()
        self.user = store.identities.ensure_user("default", "ann", "ann@localhost")
        self.registry = CollectorRegistry()
        metrics = ControllerMetrics(self.registry)
        self.controller = Controller(
            store, engine, rules, Addresses("127.0.0.1"), metrics, prometheus
        )

    def bento(self, version: str, manifest: dict[str, Any] = MANIFEST) -> int:
        organization = self.user.organization.id
        self.store.artifacts.ensure_repository(organization, Kind.BENTO, "echo")
        draft = ArtifactDraft(version=version, manifest=manifest)
        made = self.store.artifacts.create(organization, Kind.BENTO, "echo", draft)
        return self.store.uploads.finish(made.id, "f" * 64, 1).id

    def deploy(
        self,
        least: int = 0,
        most: int = 3,
        version: str = "v1",
        manifest: dict[str, Any] = MANIFEST,
    ) -> Deployment:
        made = self.store.deployments.create(
            self.user, "echo", RevisionDraft(self.bento(version, manifest), config(least, most))
        )
        self.controller.poke(made.id)
        return made

    async def deploy_running(self) -> Deployment:
        """One that is running, with one replica at least."""
        made = self.deploy(least=1)
        await until(lambda: self.status(made) == "running")
        return made

    def status(self, deployment: Deployment) -> str:
        found = self.store.deployments.get(deployment.id)
        return found.status if found else "gone"

    def reason(self, deployment: Deployment) -> str:
        """That of its status; empty = it is gone."""
        found = self.store.deployments.get(deployment.id)
        return found.reason if found else ""

    def state(self, deployment: Deployment) -> DeploymentState:
        """What the controller remembers of it."""
        found = self.controller.states.get(deployment.id)
        assert found is not None
        return found

    def update(self, deployment: Deployment, version: str, least: int = 1) -> Deployment:
        after, _ = self.store.deployments.update(
            deployment.id, RevisionDraft(self.bento(version), config(least, 3)), labels=None
        )
        self.controller.poke(deployment.id)
        return after


def config(least: int, most: int) -> dict[str, Any]:
    window = {"scale_down_stabilization_window": 0}
    scaling = {"min_replicas": least, "max_replicas": most, "policy": window}
    return {"services": {"Echo": {"scaling": scaling}}}


@asynccontextmanager
async def running(world: World) -> AsyncIterator[None]:
    app = web.Application()
    app.router.add_get("/internal/gateway", world.controller.gateways.handle)
    async with TestServer(app) as server:
        tasks = [
            asyncio.create_task(world.controller.run()),
            asyncio.create_task(world.gateway.run(str(server.make_url("/internal/gateway")))),
        ]
        await world.controller.ready.wait()
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
