"""The API with its stream, on a port that stays its own when it is started anew."""

from __future__ import annotations

from pathlib import Path

from aiohttp.test_utils import TestServer
from aiohttp.typedefs import Middleware

from hotplate.cache.store.blobs import BlobStore
from hotplate.deploy.engine import Node
from hotplate.deploy.workload import Resources
from hotplate.platform.api.hotplate.deployments import DeploymentStatusRoutes
from hotplate.platform.api.hotplate.overview import OverviewRoutes
from hotplate.platform.api.hotplate.stream import StreamRoutes
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import AUTH, STATUS, make_app
from hotplate.platform.processes.event_log import EventLog
from hotplate.platform.store.parts import Store
from tests.support.control_plane.controller_fake import FakeController


class Served:
    """The API with its stream, which can be started anew."""

    def __init__(
        self, store: Store, blobs: BlobStore, controller: FakeController, folder: Path
    ) -> None:
        self.store, self.blobs, self.controller = store, blobs, controller
        self.events = EventLog(folder / "events.jsonl")
        self.free_bytes = 1000
        self.server: TestServer | None = None
        self.port: int | None = None
        self.streams: StreamRoutes
        self.status: DeploymentStatusRoutes

    async def start(self, *middlewares: Middleware) -> TestServer:
        """`middlewares` come before all others."""
        app = make_app(self.store, self.blobs, self.controller, ApiSettings())
        app.middlewares[:0] = middlewares
        overview = OverviewRoutes(
            self.store.history,
            self.events,
            capacity=lambda: {"here": Node(Resources(8, 1 << 30, 8), Resources(1, 0, 4.5), cpus=2)},
            roles=lambda: [{"name": "gateway"}],
            disks=lambda: [{"path": "/data", "free_bytes": self.free_bytes}],
            short=list,
            gpus=lambda: {"busy": 3.0, "idle": 1.0, "starting": 0.5, "standby": 2.0},
        )
        app.add_routes(overview.routes())
        self.status = app[STATUS]
        self.streams = StreamRoutes(
            self.store.deployments,
            app[AUTH],
            self.controller,
            app[STATUS],
            overview,
            ApiSettings(),
            linger_s=1.0,
        )
        self.streams.add_to(app)
        self.server = TestServer(app, port=self.port)
        await self.server.start_server()
        self.port = self.server.port
        return self.server

    async def stop(self) -> None:
        assert self.server is not None
        await self.server.close()
