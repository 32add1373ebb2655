"""The API with its pages and its stream, of many deployments that a controller makes up.

It runs in this process: what is measured is the browser.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Middleware

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.hotplate.stream import PATH
from hotplate.platform.api.web.requests import Handler
from hotplate.platform.store.artifacts import ArtifactDraft
from hotplate.platform.store.database import Database
from hotplate.platform.store.deployment_ports import count_up
from hotplate.platform.store.deployments import RevisionDraft
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Kind, RolloutOutcome
from tests.support.control_plane.cloud import MANIFEST
from tests.support.control_plane.controller_fake import FakeController
from tests.support.control_plane.streamed_api import Served


class BusyController(FakeController):
    """Its deployments have two replicas each, and other requests whenever they change."""

    def __init__(self, store: Store, rng: random.Random) -> None:
        super().__init__(store)
        self._rng = rng
        self._live: dict[int, Mapping[str, Any]] = {}

    def live(self, deployment_id: int) -> dict[str, Any]:
        return dict(self._live.get(deployment_id) or {"services": [], "replicas": []})

    def change(self, *deployment_ids: int) -> None:
        for key in deployment_ids:
            self._live[key] = self._made_up(key)
        self.changes.changed(*deployment_ids)

    def _made_up(self, key: int) -> Mapping[str, Any]:
        rng, moment = self._rng, "2026-01-01T00:00:00+00:00"
        service = {
            "revision": 1,
            "service": "Echo",
            "min_replicas": 0,
            "max_replicas": 3,
            "concurrency": 4,
            "gpus": 0.0,
            "unserved": "",
            "refused": {},
            "desired": 2,
            "granted": 2,
            "reason": f"2 of 2: demand {rng.randrange(99)}",
            "in_flight": rng.randrange(9),
            "queued": rng.randrange(5),
        }
        cold_start_s = rng.randrange(1, 9)
        replica = {
            "node": "here",
            "revision": 1,
            "service": "Echo",
            "reason": "",
            "restarts": 0,
            "memory_bytes": rng.randrange(1 << 30),
            "created_at": moment,
            "ready_at": f"2026-01-01T00:00:0{cold_start_s}+00:00",
            "cold_start_s": float(cold_start_s),
            "wanted_at": moment,
            "phases": [],
            "log_tail": [],
        }
        states = ("ready", rng.choice(("ready", "starting", "draining")))
        return {
            "services": [service],
            "replicas": [
                replica | {"id": f"{key}-{n}", "uid": f"{key}-{n}", "state": state}
                for n, state in enumerate(states)
            ],
        }


@dataclass
class BusyApi:
    """It is served at `url`, to who has the token."""

    url: str
    token: str
    store: Store
    controller: BusyController
    ids: list[int]
    streams: int = 0
    """Connections that are told what changes, now."""

    @asynccontextmanager
    async def changing(self, number: int) -> AsyncIterator[None]:
        """So many of them change in each second of the block."""
        rng = random.Random(2)

        async def change() -> None:
            while True:
                self.controller.change(*rng.sample(self.ids, number))
                await asyncio.sleep(1.0)

        task = asyncio.create_task(change())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@asynccontextmanager
async def busy_api(folder: Path, deployments: int) -> AsyncIterator[BusyApi]:
    """With so many deployments, `d0` and on."""
    store = Store(Database(f"sqlite:///{folder}/hotplate.db"), count_up)
    user = store.identities.ensure_user("acme", "ada", "")
    store.identities.set_operator("ada", operator=True)
    token = store.tokens.add_token(user, "laptop", operator=True)
    organization, draft = user.organization.id, ArtifactDraft(version="v1", manifest=MANIFEST)
    store.artifacts.ensure_repository(organization, Kind.BENTO, "echo")
    pushed = store.artifacts.create(organization, Kind.BENTO, "echo", draft)
    made = store.uploads.finish(pushed.id, "f" * 64, 1).id
    with store.database.together():
        created = [
            store.deployments.create(user, f"d{number}", RevisionDraft(made, {"services": {}}))
            for number in range(deployments)
        ]
        for each in created:
            store.revisions.conclude_rollout(each.latest.id, RolloutOutcome.READY, "", "revision 1")
            store.deployments.set_status(each, "running", "")
    controller = BusyController(store, random.Random(1))
    ids = [each.id for each in created]
    controller.change(*ids)
    served = Served(store, BlobStore(f"file://{folder}/blobs"), controller, folder)
    api = BusyApi("", token, store, controller, ids)
    server = await served.start(_counting(api))
    api.url = str(server.make_url("/")).rstrip("/")
    recording = asyncio.create_task(controller.series.run())
    try:
        yield api
    finally:
        recording.cancel()
        await asyncio.wait([recording])
        await served.stop()
        store.close()


def _counting(api: BusyApi) -> Middleware:
    @web.middleware
    async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path != PATH:
            return await handler(request)
        api.streams += 1
        try:
            return await handler(request)
        finally:
            api.streams -= 1

    return count
