"""`hotplate standby` and its API, with the real store and the real (idle) standbys."""

from __future__ import annotations

import asyncio
import io
import random
from argparse import Namespace
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry, generate_latest
from rich.console import Console

from hotplate.autoscaler.sharing.allocation import Quota
from hotplate.deploy.local.host import ProcessHost
from hotplate.deploy.local.records import Records
from hotplate.deploy.local.runtime import Command, Warm
from hotplate.deploy.local.standby.pools import StandbyPools
from hotplate.deploy.sandbox.cgroups import Cgroups
from hotplate.deploy.sandbox.isolation import Isolation
from hotplate.deploy.standbys import StandbyMode, StandbySettings
from hotplate.platform.api.bentocloud.auth import answer_errors
from hotplate.platform.api.hotplate.standbys import PATH, StandbyRoutes
from hotplate.platform.api.web.access import Access
from hotplate.platform.api.web.requests import ACCESS, BODY_S
from hotplate.platform.cli import parser
from hotplate.platform.commands.standby import settings_of, show_standbys
from hotplate.platform.controller.standby_metrics import StandbyMetrics
from hotplate.platform.errors import BadSetting
from hotplate.platform.settings import overlaid
from hotplate.platform.spec.scopes import API
from hotplate.platform.store.audit import ACTOR, Actor, AuditFilter
from hotplate.platform.store.identities import ADMIN
from hotplate.platform.store.records import ORGANIZATION, MemberRole
from tests.support.control_plane.quick_store import QuickStore
from tests.support.patience import PATIENCE_S

CONFIGURED = StandbySettings(memory_share=0.2)
GIB = 1 << 30


class World:
    """The desk on a store that outlives it."""

    def __init__(self, folder: Path) -> None:
        self.store = QuickStore(folder / "store.db", lambda taken: 7100)
        self.news = asyncio.Event()
        cgroups = Cgroups(folder, GIB, root=folder / "none")
        self.standbys = StandbyPools(
            ProcessHost(records=Records(folder / "engine"), cgroups=cgroups, isolation=Isolation()),
            CONFIGURED,
            machine_bytes=10 * GIB,
            rng=random.Random(1),
            starting=lambda: False,
            changed=self.news.set,
        )
        self.caller = self.store.identities.ensure_user(ORGANIZATION, ADMIN, "admin@localhost")
        learnt, organizations = self.store.learnt, self.store.organizations
        self.desk = StandbyRoutes(learnt, organizations, self.standbys, CONFIGURED, 10 * GIB)

    async def serve(self) -> TestClient[Any, Any]:
        await self.desk.recall()

        @web.middleware
        async def known(request: web.Request, handler: Any) -> web.StreamResponse:
            request[ACCESS] = Access(self.caller, MemberRole.ADMIN, (API,), operator=True)
            ACTOR.set(Actor("admin", organization=ORGANIZATION))
            answer: web.StreamResponse = await handler(request)
            return answer

        app = web.Application(middlewares=[answer_errors, known])
        app[BODY_S] = 5.0
        app.add_routes(self.desk.routes())
        client = TestClient(TestServer(app))
        await client.start_server()
        return client


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    made.store.close()


async def put(client: TestClient[Any, Any], content: dict[str, Any]) -> tuple[int, Any]:
    async with client.put(PATH, json=content) as answer:
        return answer.status, await answer.json()


async def test_what_is_set_holds_at_once_and_after_a_restart_until_it_is_reset(
    world: World, tmp_path: Path
) -> None:
    client = await world.serve()
    status, shown = await put(client, {"settings": {"mode": "fixed", "count": 3}})
    assert (status, shown["settings"]["mode"], shown["set"]) == (200, "fixed", ["count", "mode"])
    assert shown["budget_bytes"] == 2 * GIB
    assert world.standbys.settings.count == 3
    (told,) = world.store.audit.page(AuditFilter(), 10)[0]
    assert (told.action, told.organization) == ("standby.update", "")
    assert told.changes == {"mode": "fixed", "count": 3}
    await put(client, {"settings": {"memory_share": 1}})
    assert world.standbys.settings == StandbySettings(StandbyMode.FIXED, 3, memory_share=1.0)
    await client.close()

    again = World(tmp_path)
    client = await again.serve()
    assert again.standbys.settings == StandbySettings(StandbyMode.FIXED, 3, memory_share=1.0)
    await put(client, {"settings": None})
    assert again.standbys.settings == CONFIGURED
    assert (await (await client.get(PATH)).json())["set"] == []
    await client.close()
    again.store.close()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mod": "off"}, "settings.mod: no such setting; did you mean 'mode'?"),
        ({"mode": "often"}, "settings.mode: 'often' is none of off, automatic, fixed"),
        ({"count": 1.5}, "settings.count: 1.5 is not a whole number"),
        ({"count": True}, "settings.count: True is not a whole number"),
        ({"memory_share": "much"}, "settings.memory_share: 'much' is not a number"),
        ({"memory_share": 2}, "settings: memory_share 2 is not within 0 and 1"),
    ],
)
async def test_a_wrong_setting_is_a_sentence_and_changes_nothing(
    world: World, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadSetting) as raised:
        overlaid(CONFIGURED, settings, "settings")
    assert str(raised.value) == said
    client = await world.serve()
    status, _ = await put(client, {"settings": settings})
    assert status == 400
    assert world.standbys.settings == CONFIGURED
    await client.close()


async def test_an_organizations_quota_of_standbys_is_held(world: World) -> None:
    warm = Warm("abc", ("/bin/true",), {}, {})
    command = Command((), {}, "/", {}, warm=warm)
    world.standbys.start()
    world.standbys.set(StandbySettings(StandbyMode.FIXED, 2, calm_s=1000.0))
    for _ in range(3):
        world.standbys.started("r1", command, (), "acme", hit=False)
    world.desk.allow({"acme": Quota(standby=1.0), "zeta": Quota()})
    async with asyncio.timeout(PATIENCE_S):
        while world.standbys.views()[0].wanted != 1:
            await world.news.wait()
            world.news.clear()
    (view,) = world.standbys.views()
    assert view.reason == "2 fixed by the operator; 1 granted, the quota of acme is used up"
    await world.standbys.close()


async def test_what_an_older_version_has_kept_is_not_followed(world: World) -> None:
    world.store.learnt.put("standby", {"speed": 3})
    await world.desk.recall()
    assert world.standbys.settings == CONFIGURED


@pytest.mark.parametrize(
    ("words", "wish"),
    [
        ("set off", {"mode": "off"}),
        ("set automatic --memory-share 0.3", {"mode": "automatic", "memory_share": 0.3}),
        ("set 2 --unused-s 60", {"mode": "fixed", "count": 2, "unused_s": 60.0}),
        ("set --min-starts 1", {"min_starts": 1}),
        ("set default", None),
    ],
)
def test_the_command_says_what_is_wished(words: str, wish: dict[str, Any] | None) -> None:
    assert settings_of(parser().parse_args(["standby", *words.split()])) == wish


@pytest.mark.parametrize(
    "words",
    [
        "set",
        "set often",
        "set -- -1",
        "set default --calm-s 3",
        "set --calm-s nan",
        "set --unused-s inf",
        "--calm-s 3",
    ],
)
def test_a_command_that_says_nothing_clear_is_one_sentence(words: str) -> None:
    arguments: Namespace = parser().parse_args(["standby", *words.split()])
    with pytest.raises(BadSetting, match=r"^standby (set|only shows)"):
        settings_of(arguments)


async def test_a_pool_is_shown_with_the_name_of_its_organization(world: World) -> None:
    rival = world.store.organizations.create("rival")
    for owner in (rival.owner, "gone", ""):
        warm = Warm("abcdef0123456789", ("/bin/true",), {}, {}, organization=owner)
        world.standbys.started("r1", Command((), {}, "/", {}, warm=warm), (), "rival", hit=True)
    client = await world.serve()
    shown = await (await client.get(PATH)).json()
    assert [(pool["pool"], pool["organization"]) for pool in shown["pools"]] == [
        ("abcdef012345 cpu rival", "rival"),
        ("abcdef012345 cpu gone", "gone"),
        ("abcdef012345 cpu", ""),
    ]
    out = io.StringIO()
    show_standbys(Console(file=out, width=200), shown)
    assert "environment abcdef012345 of rival on CPU: 0 ready" in out.getvalue()
    await client.close()


async def test_each_pool_is_shown_with_its_reason_hits_and_memory(world: World) -> None:
    warm = Warm("abcdef0123456789", ("/bin/true",), {}, {})
    command = Command((), {}, "/", {}, warm=warm)
    loop = asyncio.get_running_loop()
    assert loop.time() > 0
    for hit in (False, True, True):
        world.standbys.started("r1", command, (0,), "acme", hit=hit)
    shown = {
        "settings": asdict(CONFIGURED),
        "memory_bytes": 0,
        "budget_bytes": 2 * GIB,
        "pools": [asdict(view) for view in world.standbys.views()],
    }
    out = io.StringIO()
    show_standbys(Console(file=out, width=200), shown)
    text = out.getvalue()
    for said in (
        "standbys: automatic, from 2 starts on, for 30 min after the last",
        "of 2.1 GB taken (20% of the memory)",
        "environment abcdef012345 on GPU 0: 0 ready, 0 bytes",
        "2 of 3 starts in 7 days had one, 1 had none",
    ):
        assert said in text
    registry = CollectorRegistry()
    registry.register(StandbyMetrics(world.standbys.views))
    metrics = generate_latest(registry).decode()
    assert 'hotplate_deploy_standby_hits_count{environment="abcdef0123456789"' in metrics
    assert "hotplate_deploy_standby_memory_bytes" in metrics
