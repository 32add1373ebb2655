"""The log of another organization's replica does not exist, with the controller that runs it."""

from __future__ import annotations

from pathlib import Path

from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import make_app
from hotplate.platform.store.deployments import RevisionDraft
from tests.support.control_plane.controller_world import World, config, running
from tests.support.control_plane.fake_engine import FakeEngine
from tests.support.control_plane.quick_store import QuickStore

TAIL = "/ws/v1/clusters/default/tail?pod_name="


async def asked(http: ClientSession, deployment: str, replica: str) -> tuple[int, str]:
    """Over HTTP, and what the WebSocket says first."""
    path = f"/api/v1/hotplate/deployments/{deployment}/logs?replica={replica}"
    async with http.get(path) as answer:
        status = answer.status
    async with http.ws_connect(f"{TAIL}{deployment}/{replica}") as socket:
        await socket.send_json({"type": "data", "payload": {}})
        return status, (await socket.receive_json())["type"]


async def test_a_log_is_its_own_deployment_s_and_organization_s(
    tmp_path: Path, blobs: BlobStore
) -> None:
    store = QuickStore(tmp_path / "hotplate.db")
    world = World(store, FakeEngine())
    own = store.tokens.add_token(world.user, "own")
    stranger = store.identities.ensure_user("rival", "eve", "eve@localhost")
    theirs = store.tokens.add_token(stranger, "theirs")
    async with (
        running(world),
        TestServer(make_app(store, blobs, world.controller, ApiSettings())) as server,
    ):
        made = await world.deploy_running()
        (replica,) = world.engine.found
        log = world.engine.log_files[replica] = tmp_path / "log"
        log.write_text("hello\n")
        for token, deployment, name, expected in (
            (own, "echo", replica, (200, "success")),
            (own, "echo", "made-up", (404, "error")),
            (own, "other", replica, (404, "error")),
            (theirs, "echo", replica, (404, "error")),
        ):
            headers = {"X-YATAI-API-TOKEN": token}
            async with ClientSession(server.make_url("/"), headers=headers) as http:
                assert await asked(http, deployment, name) == expected, (deployment, name)
        # Somebody else's deployment of that name has none of its replicas.
        of_rival = store.deployments.create(
            stranger, "echo", RevisionDraft(world.bento("v2"), config(0, 1))
        )
        world.controller.poke(of_rival.id)
        headers = {"X-YATAI-API-TOKEN": theirs}
        async with ClientSession(server.make_url("/"), headers=headers) as http:
            assert await asked(http, "echo", replica) == (404, "error")
        assert world.status(made) == "running"
    store.close()
