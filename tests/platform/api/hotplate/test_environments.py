"""The environments that an organization sees, how they were built, and the removal of what nobody
wants."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import BaseTestServer, TestServer

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.hotplate.environments import ROOT, EnvironmentRoutes
from hotplate.platform.api.hotplate.garbage import PATH, Collected, GarbageRoutes
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import make_app
from hotplate.platform.store.audit import AuditFilter
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Kind
from hotplate.serving.replica.environments.folder import SHARED, EnvironmentFolder
from hotplate.serving.replica.environments.usage import Usage
from tests.support.control_plane.cloud import Cloud, Refused
from tests.support.control_plane.controller_fake import FakeController
from tests.support.replica.replicas import environments_in

SOME = Collected(manifests=1, blobs=2, environments=3, bytes=4)


class Collector:
    """Says what it was asked for."""

    def __init__(self) -> None:
        self.dry_runs: list[bool] = []

    async def collect(self, *, dry_run: bool = False) -> Collected:
        self.dry_runs.append(dry_run)
        return SOME


@dataclass
class World:
    store: Store
    server: BaseTestServer
    root: Path
    collector: Collector

    def built(self, owner: str, digest: str, bento: str, log: str, *, ready: bool = True) -> None:
        """An environment as its build leaves it."""
        folder = EnvironmentFolder(self.root / owner / digest)
        (folder.path / "attempt" / "venv").mkdir(parents=True)
        (folder.path / "attempt" / "venv" / "file").write_bytes(b"x" * 10_000)
        folder.log.write_text(log)
        Usage(self.root / owner / ".used").note(digest, bento)
        if ready:
            folder.note_ready("attempt", Path("/bin/sh"), build_s=12.5)

    def bento_of(self, organization: str) -> str:
        """The manifest of its only bento."""
        tenant = self.store.organizations.organization(organization)
        return self.store.artifacts.get(tenant.id, Kind.BENTO, "echo", "v1").files


@pytest.fixture
async def world(
    store: Store, blobs: BlobStore, controller: FakeController, tmp_path: Path
) -> AsyncIterator[World]:
    app = make_app(store, blobs, controller, ApiSettings())
    collector = Collector()
    app.add_routes(EnvironmentRoutes(store, environments_in(tmp_path)).routes())
    app.add_routes(GarbageRoutes(collector, store.audit).routes())
    async with TestServer(app) as server:
        yield World(store, server, tmp_path / "environments", collector)


def shown(answer: Any) -> list[tuple[str, str, str, list[str]]]:
    assert answer["total"] == len(answer["items"])
    found = [(o["organization"], o["digest"], o["state"], o["used_by"]) for o in answer["items"]]
    return sorted(found)


async def test_an_organization_sees_its_own_and_an_operator_all(world: World) -> None:
    server, store = world.server, world.store
    async with (
        Cloud(server, store) as acme,
        Cloud(server, store, "rival", name="eve") as rival,
        Cloud(server, store, "default", name="admin", operator=True) as operator,
    ):
        await acme.push_bento()
        await rival.push_bento(more="who: rival\n")
        version = {"bento": "echo:v1", "weight": 10}
        await acme.deploy("one", canary={"route_type": "random", "versions": {"next": version}})
        await acme.deploy("two")
        await rival.deploy("three")
        mine, theirs = (store.organizations.organization(n).owner for n in ("acme", "rival"))
        log = "".join(f"line {n}\n" for n in range(30))
        world.built(mine, "aa", world.bento_of("acme"), log)
        world.built(mine, "bb", "a bento that nobody has", "it failed\n", ready=False)
        world.built(theirs, "cc", world.bento_of("rival"), "theirs\n")
        world.built(SHARED, "dd", world.bento_of("rival"), "shared\n")
        own = [("acme", "aa", "ready", ["one", "two"]), ("acme", "bb", "failed", [])]
        seen = await acme.call("GET", ROOT)
        assert shown(seen) == own
        (ready,) = [one for one in seen["items"] if one["digest"] == "aa"]
        assert ready["build_s"] == 12.5 and ready["built_at"].endswith("+00:00")
        assert ready["size_bytes"] >= 10_000
        assert ready["log_tail"] == [f"line {n}" for n in range(10, 30)]
        (failed,) = [one for one in seen["items"] if one["digest"] == "bb"]
        assert (failed["built_at"], failed["build_s"], failed["size_bytes"]) == (None, None, 0)
        others = [("", "dd", "ready", ["three"]), ("rival", "cc", "ready", ["three"])]
        assert shown(await rival.call("GET", ROOT)) == others
        assert shown(await operator.call("GET", ROOT)) == sorted(own + others)
        operator.http.headers["X-Hotplate-Organization"] = "acme"
        assert shown(await operator.call("GET", ROOT)) == own


async def test_the_output_of_a_build_is_shown_whole_also_when_it_failed(world: World) -> None:
    async with (
        Cloud(world.server, world.store) as acme,
        Cloud(world.server, world.store, "rival", name="eve") as rival,
    ):
        await acme.push_bento()
        await acme.deploy("one")
        path = "/api/v1/hotplate/deployments/one/build_log"
        assert await acme.call("GET", path) == {"digest": "", "state": "", "log": ""}
        owner = world.store.organizations.organization("acme").owner
        log = "".join(f"line {n}\n" for n in range(5000))
        world.built(owner, "aa", world.bento_of("acme"), log, ready=False)
        answer = await acme.call("GET", path)
        assert answer == {"digest": "aa", "state": "failed", "log": log}
        await acme.push_bento(version="v2", more="same: lock\n")
        await acme.deploy("two", bento="echo:v2")
        tenant = world.store.organizations.organization("acme")
        other = world.store.artifacts.get(tenant.id, Kind.BENTO, "echo", "v2").files
        Usage(world.root / owner / ".used").note("aa", other)
        assert (await acme.call("GET", path.replace("one", "two")))["log"] == log, "it is shared"
        with pytest.raises(Refused, match="404"):
            await rival.call("GET", path)


async def test_operators_alone_have_what_nobody_wants_removed(world: World) -> None:
    async with (
        Cloud(world.server, world.store) as acme,
        Cloud(world.server, world.store, "default", name="admin", operator=True) as operator,
    ):
        with pytest.raises(Refused, match="403"):
            await acme.call("POST", PATH)
        some = {"manifests": 1, "blobs": 2, "environments": 3, "bytes": 4}
        assert await operator.call("POST", PATH, {"dry_run": True}) == some
        assert await operator.call("POST", f"{PATH}?dry_run=true") == some
        assert world.store.audit.page(AuditFilter(action="gc.run"), 10)[1] == 0
        assert await operator.call("POST", PATH) == some
        assert world.collector.dry_runs == [True, True, False]
        (line,) = world.store.audit.page(AuditFilter(action="gc.run"), 10)[0]
        assert (line.actor, line.changes) == ("admin", some)
        with pytest.raises(Refused, match=r"400.*dry_run"):
            await operator.call("POST", PATH, {"dry_run": "perhaps"})
