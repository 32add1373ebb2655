"""Our routes about the platform as a whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer

from hotplate.cache.store.blobs import BlobStore
from hotplate.deploy.engine import Node
from hotplate.deploy.workload import Resources
from hotplate.platform.api.hotplate.overview import OverviewRoutes
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import make_app
from hotplate.platform.backend import KeptEvents
from hotplate.platform.processes.event_log import EventLog
from hotplate.platform.store.parts import Store
from hotplate.platform.stored_events import StoredEvents
from tests.support.control_plane.cloud import Cloud, Refused
from tests.support.control_plane.controller_fake import FakeController


@pytest.fixture(params=["in a file", "in the database"])
def events(request: pytest.FixtureRequest, tmp_path: Path, store: Store) -> KeptEvents:
    if request.param == "in the database":
        return StoredEvents(store)
    return EventLog(tmp_path / "events.jsonl")


@pytest.fixture
async def cloud(
    store: Store, blobs: BlobStore, controller: FakeController, events: KeptEvents
) -> AsyncIterator[Cloud]:
    app = make_app(store, blobs, controller, ApiSettings())
    pages = OverviewRoutes(
        store.history,
        events,
        capacity=lambda: {"here": Node(Resources(8, 1 << 30, 8), Resources(1, 0, 4.5), cpus=2)},
        roles=lambda: [{"name": "gateway"}],
        disks=lambda: [{"path": "/data"}],
        short=lambda: ["the agent does not answer"],
        unwalled="no namespaces",
        gpus=lambda: {"busy": 3.0, "idle": 1.0, "starting": 0.5, "standby": 2.0},
    )
    app.add_routes(pages.routes())
    async with TestServer(app) as server, Cloud(server, store, operator=True) as cloud:
        yield cloud
        await controller.settled()


async def test_the_platforms_page_says_how_its_parts_are(cloud: Cloud) -> None:
    page = await cloud.call("GET", "/api/v1/hotplate/platform")
    assert page["roles"] == [{"name": "gateway"}]
    assert page["short"] == ["the agent does not answer"]
    assert page["walls"] == {"up": False, "why": "no namespaces"}
    parts = page["gpus"]
    assert (parts.pop("in_all"), parts["free"], parts["standby"]) == (8, 1.5, 2)
    assert sum(parts.values()) == 8
    (node,) = page["nodes"]
    assert (node["name"], node["cpus"]) == ("here", 2)
    assert (node["in_all"]["cpus"], node["taken"]["cpus"]) == (8, 1)


async def test_events_of_the_platform_and_of_its_deployments_stand_in_one_list(
    cloud: Cloud, controller: FakeController, events: KeptEvents
) -> None:
    events.add("RoleEnded", "the gateway has ended")
    await cloud.push_bento("echo", "v1")
    await cloud.call("POST", "/api/v2/deployments", {"name": "chat", "bento": "echo:v1"})
    await controller.settled()
    events.add("AgentLost", "the agent does not answer")
    await events.finish()
    found = await cloud.call("GET", "/api/v1/hotplate/events")
    assert [(event["deployment"], event["kind"]) for event in found] == [
        ("", "AgentLost"),
        ("chat", "RolloutReady"),
        ("chat", "Created"),
        ("", "RoleEnded"),
    ]
    (last,) = await cloud.call("GET", "/api/v1/hotplate/events?count=1")
    assert last["kind"] == "AgentLost"


async def test_another_organizations_events_are_not_shown(cloud: Cloud, store: Store) -> None:
    await cloud.push_bento("echo", "v1")
    await cloud.call("POST", "/api/v2/deployments", {"name": "chat", "bento": "echo:v1"})
    async with Cloud(cloud.server, store, "other") as other:
        assert await other.call("GET", "/api/v1/hotplate/events") == []


async def test_what_happens_to_the_platform_is_the_operators(
    cloud: Cloud, events: KeptEvents
) -> None:
    events.add("AgentLost", "the agent does not answer")
    await events.finish()
    async with Cloud(cloud.server, cloud.store, "rival", name="eve") as eve:
        assert await eve.call("GET", "/api/v1/hotplate/events") == []
        with pytest.raises(Refused, match=r"403.*needs an operator"):
            await eve.call("GET", "/api/v1/hotplate/platform")
