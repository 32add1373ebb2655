"""A canary by the real controller, with replicas in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from hotplate.deploy.engine import ReplicaState
from hotplate.platform.store.canaries import NO_CANARY, CanaryDraft, RevisionDraft
from hotplate.platform.store.records import Deployment
from hotplate.serving.gateway.protocol.routes import RouteDemand
from tests.support.control_plane.controller_world import World, config, running
from tests.support.control_plane.fake_engine import FakeEngine
from tests.support.control_plane.quick_store import QuickStore
from tests.support.patience import until


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    store = QuickStore(tmp_path / "hotplate.db")
    world = World(store, FakeEngine())
    async with running(world):
        yield world
    store.close()


def changed(world: World, made: Deployment, canary: CanaryDraft) -> None:
    latest = world.state(made).deployment.latest
    draft = RevisionDraft(latest.bento.id, latest.config)
    world.store.deployments.update(made.id, draft, None, canary=canary)
    for deployment in (made.id, *world.store.deployments.versions(made.id)):
        world.controller.poke(deployment)


def weights(world: World) -> dict[str, float]:
    route = world.gateway.route()
    return {} if route is None else {share.id: share.weight for share in route.versions}


def has_weight(world: World, weight: int) -> bool:
    return weights(world) == {"next": weight}


async def with_canary(world: World, weight: int = 10) -> tuple[Deployment, RevisionDraft]:
    made = await world.deploy_running()
    draft = RevisionDraft(world.bento("v2"), config(1, 1))
    changed(world, made, CanaryDraft({"next": draft}, {"next": weight}, "random"))
    await until(lambda: bool(weights(world)))
    return made, draft


async def test_a_version_gets_its_part_once_it_was_ready(world: World) -> None:
    world.engine.ready_at_once = True
    made = await world.deploy_running()
    world.engine.ready_at_once = False
    draft = RevisionDraft(world.bento("v2"), config(1, 1))
    changed(world, made, CanaryDraft({"next": draft}, {"next": 10}, "header", "X-User"))
    await until(lambda: weights(world) == {"next": 0})
    await until(lambda: len(world.engine.found) == 2)
    (new,) = (r.id for r in world.engine.replicas() if r.key.deployment == "echo#next")
    world.engine.become(new, ReplicaState.READY)
    await until(lambda: weights(world) == {"next": 10})
    route = world.gateway.route()
    assert route is not None
    assert (route.route_type, route.route_by) == ("header", "X-User")
    own = world.gateway.route("default/echo#next")
    assert own is not None
    assert own.port == 0
    assert [replica.version for replica in own.replicas] == ["next@1"]
    assert [replica.version for replica in route.replicas] == ["main@1"]


async def test_weights_and_ways_to_choose_start_and_stop_nothing(world: World) -> None:
    made, draft = await with_canary(world)
    await until(lambda: weights(world) == {"next": 10})
    before = sorted(world.engine.found)
    for weight in (20, 0, 100, 35):
        changed(world, made, CanaryDraft({"next": draft}, {"next": weight}, "query", "u"))
        await until(partial(has_weight, world, weight))
    assert sorted(world.engine.found) == before
    assert world.engine.removed == []
    assert world.state(made).deployment.latest.number == 1


async def test_a_version_that_sleeps_keeps_its_part_and_is_woken_by_its_own_requests(
    world: World,
) -> None:
    made = await world.deploy_running()
    draft = RevisionDraft(world.bento("v2"), config(0, 1))
    changed(world, made, CanaryDraft({"next": draft}, {"next": 30}, "random"))
    await until(lambda: weights(world) == {"next": 30})

    def there() -> list[str]:
        return sorted(replica.key.deployment for replica in world.engine.replicas())

    await until(lambda: there() == ["echo"])
    assert weights(world) == {"next": 30}
    await world.gateway.report(**{"default__echo#next": RouteDemand(queued=1)})
    await until(lambda: there() == ["echo", "echo#next"])


async def test_a_worse_canary_gets_nothing_any_longer(world: World) -> None:
    made, _ = await with_canary(world)
    await until(lambda: weights(world) == {"next": 10})
    main = {"main@1": {"2xx": 100}}
    worse = {"next@1": {"2xx": 20, "5xx": 20}}
    reports = {
        "default/echo": RouteDemand(completed=100, answers=main),
        "default/echo#next": RouteDemand(completed=40, answers=worse),
    }
    await world.gateway.report(**{name.replace("/", "__"): one for name, one in reports.items()})
    await until(lambda: weights(world) == {"next": 0})
    events = {e.kind: e.message for e in world.store.history.events(made.id)}
    assert "20 of its 40 answers failed" in events["CanaryStopped"]
    assert world.status(made) == "running"
    shown = world.controller.live(made.id)["rollout"]["versions"]
    assert [(v["version"], v["weight"]) for v in shown] == [("main", 100), ("next", 0)]


async def test_a_canary_that_is_over_leaves_nothing(world: World) -> None:
    made, _ = await with_canary(world)
    await until(lambda: weights(world) == {"next": 10})
    shown = world.controller.live(made.id)["rollout"]["versions"]
    assert [(v["version"], v["share"]) for v in shown] == [("main", 0.9), ("next", 0.1)]
    changed(world, made, NO_CANARY)
    await until(lambda: weights(world) == {})
    await until(lambda: len(world.engine.found) == 1)
    await until(lambda: world.store.deployments.versions(made.id) == [])
    await until(lambda: world.gateway.route("default/echo#next") is None)
