"""Where services of a bento reach each other: by ports of this machine, or by names."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from hotplate.deploy.workload import WorkloadKey
from hotplate.platform.errors import PortsExhausted
from hotplate.platform.store.deployments import RevisionDraft
from hotplate.platform.store.records import Deployment
from tests.support.control_plane.cloud import MANIFEST
from tests.support.control_plane.controller_world import RULES, World, config, running
from tests.support.control_plane.fake_engine import FakeEngine
from tests.support.control_plane.quick_store import QuickStore
from tests.support.patience import until


async def test_without_ports_for_its_services_one_waits_and_says_so_and_the_others_serve(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotplate.platform.controller.reconciler.PORTS_AGAIN_S", 0.01)
    most = 2

    def allocate(taken: set[int]) -> int:
        if len(taken) >= most:
            raise PortsExhausted(f"deployment_ports 1-{most}: all are taken")
        return next(port for port in range(1, most + 1) if port not in taken)

    store = QuickStore(tmp_path / "hotplate.db", allocate)
    world = World(store, FakeEngine())
    echo = world.deploy(least=1)
    calling = {"name": "Echo", "dependencies": [{"service": "Other"}]}
    chain = {**MANIFEST, "services": [calling, {"name": "Other"}]}
    draft = RevisionDraft(world.bento("v2", chain), config(1, 1))
    waits = store.deployments.create(world.user, "waits", draft)
    async with running(world):
        await until(lambda: world.status(echo) == "running")
        await until(lambda: "all are taken" in world.reason(waits))
        assert world.status(waits) == "deploying"
        assert "Traceback" not in caplog.text and "step failed" not in caplog.text
        assert {replica.key.deployment for replica in world.engine.found.values()} == {"echo"}
        await until(lambda: world.engine.expected is not None)
        store.deployments.delete(echo.id)
        world.controller.poke(echo.id)
        await until(lambda: world.status(waits) == "running")
    store.close()


class ByName:
    """Services of one bento reach each other by names."""

    need_ports = False

    def of(self, key: WorkloadKey, services: Collection[str], port: int) -> str:
        return f"{key.service.lower()}.svc"


async def test_where_services_have_names_no_ports_are_given(tmp_path: Path) -> None:
    def allocate(taken: set[int]) -> int:
        if taken:
            raise PortsExhausted("deployment_ports 1-1: all are taken")
        return 1

    store = QuickStore(tmp_path / "hotplate.db", allocate)
    world = World(store, FakeEngine(), rules=replace(RULES, inner=ByName()))
    calling = {"name": "Echo", "dependencies": [{"service": "Other"}]}
    chain = {**MANIFEST, "services": [calling, {"name": "Other"}]}
    draft = RevisionDraft(world.bento("v1", chain), config(1, 1))
    made = store.deployments.create(world.user, "chain", draft)
    async with running(world):
        await until(lambda: world.status(made) == "running")
        entry, other = world.state(made).services[1]
        assert (entry.workload.depends, other.address) == (
            {"Other": "http://other.svc"},
            "other.svc",
        )
        await until(lambda: bool(world.gateway.route("default/chain@1/Other")))
        inner = world.gateway.route("default/chain@1/Other")
        assert inner is not None and (inner.port, inner.hosts) == (0, ("other.svc",))
    store.close()


async def test_the_ports_of_deployments_that_are_gone_are_given_again(tmp_path: Path) -> None:
    def allocate(taken: set[int]) -> int:
        if 1 in taken and 2 in taken:
            raise PortsExhausted("deployment_ports 1-2: both are taken")
        return 2 if 1 in taken else 1

    store = QuickStore(tmp_path / "hotplate.db", allocate)
    world = World(store, FakeEngine())
    bento = world.bento("v1")
    async with running(world):
        for number in range(50):
            draft = RevisionDraft(bento, config(number % 2, 1))
            made = store.deployments.create(world.user, f"echo-{number}", draft)
            world.controller.poke(made.id)
            store.deployments.delete(made.id)
            world.controller.poke(made.id)
            await until(partial(is_gone, world, made))
    store.close()


def is_gone(world: World, made: Deployment) -> bool:
    return world.status(made) == "gone"
