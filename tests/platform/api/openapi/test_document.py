"""`/openapi.json` says what our own routes take and answer, and schemathesis finds it true.

`HOTPLATE_API_CASES` is how many cases each route gets; `make test-api` runs 10,000 and more in all.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import booleans, one_of
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.hotplate.environments import EnvironmentRoutes
from hotplate.platform.api.hotplate.garbage import Collected, GarbageRoutes
from hotplate.platform.api.openapi.document import document
from hotplate.platform.api.openapi.operations import OPERATIONS
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import make_app
from hotplate.platform.controller.planning.addresses import CallTarget
from hotplate.platform.store.parts import Store
from hotplate.serving.replica.environments.folder import EnvironmentFolder
from tests.support.control_plane.cloud import Cloud
from tests.support.control_plane.controller_fake import FakeController
from tests.support.replica.replicas import environments_in

CASES = int(os.environ.get("HOTPLATE_API_CASES", "8"))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
NOT_HERE = {f"/api/v1/hotplate/{name}" for name in ("platform", "standby", "events", "stream")}
"""What the control plane's process adds to the application, and is not added here."""
API = schemathesis.openapi.from_dict(document())


class Nothing:
    """What a removal finds."""

    async def collect(self, *, dry_run: bool = False) -> Collected:
        return Collected()


@pytest.fixture
async def cloud(
    store: Store, blobs: BlobStore, controller: FakeController, tmp_path: Path
) -> AsyncIterator[Cloud]:
    """With the routes about a node's environments, one of which there is, and about removals."""
    app = make_app(store, blobs, controller, ApiSettings())
    app.add_routes(EnvironmentRoutes(store, environments_in(tmp_path)).routes())
    app.add_routes(GarbageRoutes(Nothing(), store.audit).routes())
    async with TestServer(app) as server, Cloud(server, store) as made:
        mine = tmp_path / "environments" / made.user.organization.owner
        folder = EnvironmentFolder(mine / "aa")
        (folder.path / "attempt" / "venv").mkdir(parents=True)
        folder.log.write_text("a line\n")
        folder.note_ready("attempt", Path("/bin/sh"), build_s=12.5)
        # The API itself stands where the gateway of deployments does.
        controller.target = CallTarget(str(server.make_url("")).rstrip("/"))
        yield made
        await controller.settled()


async def test_every_route_of_ours_is_described(cloud: Cloud) -> None:
    async with ClientSession() as http, http.get(cloud.server.make_url("/openapi.json")) as answer:
        assert (await answer.json())["openapi"] == "3.1.0"
    app: Any = cloud.server.app  # type: ignore[attr-defined]
    ours = {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.method != "HEAD"
        and route.resource is not None
        and route.resource.canonical.startswith(("/api/v1/hotplate/", "/healthz", "/readyz"))
    }
    assert ours - OPERATIONS.keys() == set()


async def test_what_the_server_refuses_by_itself_is_described(cloud: Cloud) -> None:
    url, headers = cloud.server.make_url("/api/v1/hotplate/audit"), {"Expect": "a miracle"}
    async with ClientSession() as http, http.get(url, headers=headers) as answer:
        described = document()["paths"]["/api/v1/hotplate/audit"]["get"]["responses"]
        assert answer.content_type in described[str(answer.status)]["content"]


@pytest.mark.parametrize(
    ("method", "path"), [(m, path) for m, path in OPERATIONS if path not in NOT_HERE]
)
async def test_what_is_answered_is_what_is_described(cloud: Cloud, method: str, path: str) -> None:
    await cloud.push_bento()
    await cloud.deploy("echo")
    await cloud.register("model", "ada", "v1")
    cloud.store.identities.set_operator("ada", operator=True)
    operator = cloud.store.tokens.add_token(cloud.user, "operator", operator=True)
    url = str(cloud.server.make_url("/")).rstrip("/")
    operation = API[path][method]
    seen = []

    @settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        case=one_of(*(operation.as_strategy(mode) for mode in GenerationMode)), is_real=booleans()
    )
    def ask(case: Any, is_real: bool) -> None:
        seen.append(case)
        if is_real:  # most names that are made up are nobody's
            names = {"organization": "acme", "name": "echo" if "/deployments/" in path else "ada"}
            names["version"] = "v1"
            case.path_parameters = {name: names[name] for name in case.path_parameters}
        answer = case.call(base_url=url, headers={"X-YATAI-API-TOKEN": operator})
        case.validate_response(answer, checks=CHECKS)

    await asyncio.to_thread(ask)
    assert seen
