"""Roll-outs while something else happens, by the real controller, with replicas in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.platform.controller.rollouts.strategies import Strategy
from hotplate.platform.store.deployments import RevisionDraft
from hotplate.platform.store.records import Deployment
from hotplate.serving.gateway.protocol.routes import RouteDemand
from tests.support.control_plane.controller_world import MANIFEST, World, config, running
from tests.support.control_plane.fake_engine import FakeEngine
from tests.support.control_plane.quick_store import QuickStore
from tests.support.patience import until

QUICK = [
    {"key": "hotplate/auto-rollback", "value": "false"},
    {"key": "hotplate/ramp-s", "value": "0"},
]
SHARING = [each for each in Strategy if each.shares]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    store = QuickStore(tmp_path / "hotplate.db")
    world = World(store, FakeEngine())
    async with running(world):
        yield world
    store.close()


def following(strategy: Strategy, least: int, most: int | None = None) -> dict[str, Any]:
    found = config(least, least if most is None else most)
    if strategy.shares:
        found["services"]["Echo"]["deployment_strategy"] = strategy.value
    return found


async def deployed(world: World, replicas: int) -> Deployment:
    draft = RevisionDraft(world.bento("v1"), config(replicas, replicas))
    made = world.store.deployments.create(world.user, "echo", draft, QUICK)
    world.controller.poke(made.id)
    await until(lambda: len(world.gateway.routed()) == replicas)
    await until(lambda: world.status(made) == "running")
    return made


def change(world: World, made: Deployment, version: str, settings: dict[str, Any]) -> None:
    draft = RevisionDraft(world.bento(version), settings)
    world.store.deployments.update(made.id, draft, None, force=True)
    world.controller.poke(made.id)


def coming(world: World) -> list[Replica]:
    return [r for r in world.engine.replicas() if r.state is ReplicaState.STARTING]


async def carried_on(world: World, made: Deployment, fewest: int) -> None:
    """Replicas become ready one by one, until it runs; never fewer are routed than that."""
    while world.status(made) != "running" or coming(world):
        await until(lambda: bool(coming(world)) or world.status(made) == "running")
        assert len(world.gateway.routed()) >= fewest
        for each in coming(world)[:1]:
            world.engine.become(each.id, ReplicaState.READY)


async def only(world: World, revision: int, replicas: int) -> None:
    await until(lambda: {r.key.revision for r in world.engine.replicas()} == {revision})
    await until(lambda: len(world.engine.of(revision)) == replicas)
    await until(lambda: len(world.gateway.routed()) == replicas)


@pytest.mark.parametrize("strategy", [Strategy.ROLLING, Strategy.RAMPED])
async def test_a_machine_without_room_is_said_and_the_old_revision_stays(
    world: World, strategy: Strategy
) -> None:
    made = await deployed(world, 3)
    world.engine.ready_at_once = False
    change(world, made, "v2", following(strategy, 3))
    await until(lambda: len(coming(world)) == 1)
    full = "this machine has 0 of the 2 CPUs that it needs"
    (new,) = coming(world)
    world.engine.become(new.id, ReplicaState.PENDING, full)
    await until(lambda: full in str(world.state(made).deployment.reason))
    assert world.status(made) == "deploying"
    shown = world.controller.live(made.id)["rollout"]
    assert full in shown["reason"]
    assert len(world.engine.of(1)) == len(world.gateway.routed()) == 3
    assert len(world.engine.of(2)) == 1
    world.engine.become(new.id, ReplicaState.READY)
    await carried_on(world, made, 3)
    await only(world, 2, 3)


@pytest.mark.parametrize("strategy", SHARING)
async def test_a_quota_that_shrinks_midway_is_kept_and_said(
    world: World, strategy: Strategy
) -> None:
    made = await deployed(world, 3)
    world.engine.ready_at_once = False
    change(world, made, "v2", following(strategy, 3))
    await until(lambda: bool(coming(world)))
    world.store.quotas.set("default", {"replicas": 2})
    world.controller.quotas_changed()

    def reason() -> str:
        return str(world.controller.live(made.id)["rollout"]["reason"])

    world.engine.become(coming(world)[0].id, ReplicaState.READY)  # it is not over with this one
    await until(lambda: "has a quota of 2 replicas" in reason())
    world.engine.ready_at_once = True
    world.store.quotas.set("default", {"replicas": 4})
    world.controller.quotas_changed()
    for each in coming(world):
        world.engine.become(each.id, ReplicaState.READY)
    await only(world, 2, 3)
    await until(lambda: world.status(made) == "running")


@pytest.mark.parametrize("strategy", [Strategy.NONE, *SHARING])
async def test_what_is_undone_midway_ends_as_it_was(world: World, strategy: Strategy) -> None:
    made = await deployed(world, 3)
    world.engine.ready_at_once = False
    change(world, made, "v2", following(strategy, 3))
    await until(lambda: bool(coming(world)))
    world.engine.become(coming(world)[0].id, ReplicaState.READY)
    change(world, made, "v1", following(strategy, 3))
    await carried_on(world, made, 3 if strategy.needs_room else 0)
    await only(world, 3, 3)


@pytest.mark.parametrize("strategy", [Strategy.NONE, *SHARING])
async def test_another_number_midway_is_reached(world: World, strategy: Strategy) -> None:
    made = await deployed(world, 2)
    world.engine.ready_at_once = False
    change(world, made, "v2", following(strategy, 2))
    await until(lambda: bool(coming(world)))
    world.engine.become(coming(world)[0].id, ReplicaState.READY)
    change(world, made, "v2", following(strategy, 4))
    await until(lambda: bool(coming(world)))
    change(world, made, "v2", following(strategy, 1))
    await carried_on(world, made, 1 if strategy.needs_room else 0)
    await only(world, 4, 1)


@pytest.mark.parametrize("strategy", [Strategy.NONE, *SHARING])
async def test_what_sleeps_proves_the_new_revision_and_sleeps_again(
    world: World, strategy: Strategy
) -> None:
    draft = RevisionDraft(world.bento("v1"), config(0, 3))
    made = world.store.deployments.create(world.user, "echo", draft, QUICK)
    world.controller.poke(made.id)
    await until(lambda: world.status(made) == "scaled-to-zero")
    change(world, made, "v2", following(strategy, 0, 3))
    await until(lambda: world.status(made) == "scaled-to-zero" and not world.engine.replicas())
    latest = world.store.deployments.get(made.id)
    assert latest is not None and latest.serving == latest.latest
    await world.gateway.report(default__echo=RouteDemand(queued=1))
    await until(lambda: [r.key.revision for r in world.engine.replicas()] == [2])


ONE_SLOT = {"config": {"traffic": {"concurrency": 1}}}
CHAIN: dict[str, Any] = {
    **MANIFEST,
    "services": [
        {**ONE_SLOT, "name": "Echo", "dependencies": [{"service": "Left"}, {"service": "Right"}]},
        {**ONE_SLOT, "name": "Left"},
        {**ONE_SLOT, "name": "Right"},
    ],
}


@pytest.mark.parametrize("strategy", [Strategy.NONE, *SHARING])
async def test_a_chain_of_which_one_service_changes(world: World, strategy: Strategy) -> None:
    made = world.deploy(least=1, most=1, manifest=CHAIN)
    world.store.deployments.update(
        made.id, RevisionDraft(made.latest.bento.id, made.latest.config), QUICK
    )
    await until(lambda: world.status(made) == "running")
    await until(lambda: len(world.engine.of(1)) == 3)
    world.engine.ready_at_once = False
    settings = following(strategy, 1)
    one = {"scaling": {"min_replicas": 1, "max_replicas": 1}}
    settings["services"] |= {"Left": {**one, "envs": [{"name": "A", "value": "b"}]}, "Right": one}
    draft = RevisionDraft(made.latest.bento.id, settings)
    world.store.deployments.update(made.id, draft, None)
    world.controller.poke(made.id)
    callable_ = {"Left", "Right"}
    while world.status(made) != "running" or coming(world):
        await until(lambda: bool(coming(world)) or world.status(made) == "running")
        # The entry service first: it gets requests only once all that it calls is ready.
        for each in sorted(coming(world), key=lambda r: r.key.service)[:1]:
            world.engine.become(each.id, ReplicaState.READY)
        ready = {r.key.service for r in world.engine.of(2) if r.state is ReplicaState.READY}
        new = {r.id for r in world.engine.of(2)}
        assert callable_ <= ready or not new & set(world.gateway.routed())
    await until(lambda: len(world.engine.of(2)) == len(world.engine.replicas()) == 3)
