"""Roll-outs by each strategy, by the real controller, with replicas in memory."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hotplate.deploy.engine import ReplicaState
from hotplate.platform.controller.rollouts.strategies import Strategy
from hotplate.platform.store.deployments import RevisionDraft
from hotplate.platform.store.records import Deployment
from hotplate.serving.gateway.protocol.routes import RouteDemand
from tests.support.control_plane.controller_world import World, config, running
from tests.support.control_plane.fake_engine import FakeEngine
from tests.support.control_plane.quick_store import QuickStore
from tests.support.patience import until

UNCOMPARED = [{"key": "hotplate/auto-rollback", "value": "false"}]
AT_ONCE = [*UNCOMPARED, {"key": "hotplate/ramp-s", "value": "0"}]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    store = QuickStore(tmp_path / "hotplate.db")
    world = World(store, FakeEngine())
    async with running(world):
        yield world
    store.close()


def following(strategy: Strategy, replicas: int) -> dict[str, Any]:
    found = config(replicas, replicas)
    found["services"]["Echo"]["deployment_strategy"] = strategy.value
    return found


async def deployed(
    world: World, replicas: int, labels: list[dict[str, str]] = UNCOMPARED
) -> Deployment:
    draft = RevisionDraft(world.bento("v1"), config(replicas, replicas))
    made = world.store.deployments.create(world.user, "echo", draft, labels)
    world.controller.poke(made.id)
    await until(lambda: len(world.gateway.routed()) == replicas)
    await until(lambda: world.status(made) == "running")
    return made


async def begun(world: World, made: Deployment, strategy: Strategy, replicas: int) -> None:
    """The second revision is asked for; its replicas become ready when a test says so."""
    world.engine.ready_at_once = False
    draft = RevisionDraft(world.bento("v2"), following(strategy, replicas), by="ann")
    world.store.deployments.update(made.id, draft, labels=None)
    world.controller.poke(made.id)


def coming(world: World) -> list[str]:
    return [r.id for r in world.engine.of(2) if r.state is not ReplicaState.READY]


def most(strategy: Strategy, replicas: int) -> int:
    return {
        Strategy.ROLLING: replicas + math.ceil(replicas / 4),
        Strategy.RAMPED: replicas + 1,
    }.get(strategy, replicas)


@pytest.mark.parametrize("strategy", [each for each in Strategy if each.shares])
@pytest.mark.parametrize("replicas", [1, 3])
async def test_a_strategy_keeps_its_bounds_until_the_new_revision_serves_alone(
    world: World, strategy: Strategy, replicas: int
) -> None:
    made = await deployed(world, replicas, AT_ONCE)
    await begun(world, made, strategy, replicas)
    while True:
        await until(lambda: bool(coming(world)) or world.status(made) == "running")
        there = world.engine.replicas()
        assert len(there) <= most(strategy, replicas)
        if strategy.needs_room:
            assert len(world.gateway.routed()) >= replicas
        if strategy is Strategy.RECREATE:
            assert len({replica.key.revision for replica in there}) == 1
        if not coming(world):
            break
        assert world.status(made) == "deploying"
        world.engine.become(coming(world)[0], ReplicaState.READY)
    await until(lambda: not world.engine.of(1))
    assert len(world.engine.of(2)) == replicas
    await until(lambda: world.controller.live(made.id)["rollout"]["phase"] == "done")

    def versions() -> list[tuple[int, float, int]]:
        shown = world.controller.live(made.id)["rollout"]
        assert (shown["strategy"], shown["from"], shown["to"]) == (strategy.value, 1, 2)
        return [(v["revision"], v["share"], v["ready"]) for v in shown["versions"]]

    await until(lambda: versions() == [(2, 1.0, replicas)])


async def shifting(world: World) -> Deployment:
    """One of two replicas, whose second revision has its first beside them."""
    made = await deployed(world, 2, [])
    await begun(world, made, Strategy.RAMPED, 2)
    await until(lambda: bool(coming(world)))
    world.engine.become(coming(world)[0], ReplicaState.READY)
    await until(lambda: len(world.gateway.routed()) == 3)
    return made


async def test_both_revisions_share_the_requests(world: World) -> None:
    made = await shifting(world)
    shown = world.controller.live(made.id)["rollout"]
    assert (shown["phase"], shown["from"], shown["to"]) == ("shifting", 1, 2)
    assert shown["reason"] == "revision 2 takes over from revision 1"
    assert [(v["revision"], round(v["share"], 2)) for v in shown["versions"]] == [
        (2, 0.33),
        (1, 0.67),
    ]
    route = world.gateway.route()
    assert route is not None
    assert sorted(r.version for r in route.replicas) == ["main@1", "main@1", "main@2"]


async def test_a_revision_that_answers_worse_is_stopped(world: World) -> None:
    made = await shifting(world)
    answers = {"main@1": {"2xx": 100}, "main@2": {"2xx": 15, "5xx": 10, "broken": 5}}
    await world.gateway.report(default__echo=RouteDemand(completed=30, answers=answers))
    await until(lambda: world.status(made) == "failed")
    found = world.store.deployments.get(made.id)
    assert found is not None
    assert "15 of its 30 answers failed, and 0 of 100 of the revision beside it" in found.reason
    assert "revision 1 keeps serving" in found.reason
    kinds = [event.kind for event in world.store.history.events(made.id)]
    assert "RolloutStopped" in kinds
    await until(lambda: not world.engine.of(2))
    assert len(world.engine.of(1)) == 2
    await until(lambda: sorted(world.gateway.routed()) == sorted(r.id for r in world.engine.of(1)))
    shown = world.controller.live(made.id)["rollout"]
    assert shown["phase"] == "stopped"


async def test_what_is_stopped_drains_before_it_ends(world: World) -> None:
    """Its end is noted, and the next step taken, before any gateway has heard of it."""
    made = await shifting(world)
    (new,) = (r.id for r in world.engine.of(2) if r.state is ReplicaState.READY)
    asked: list[bool] = []
    remove = world.engine.scale

    async def scale(workload: Any, count: int, **more: Any) -> None:
        if new in more.get("remove", ()):
            route = world.gateway.route()
            assert route is not None
            asked.append(all(r.draining for r in route.replicas if r.id == new))
        await remove(workload, count, **more)

    world.engine.scale = scale  # type: ignore[method-assign]
    answers = {"main@1": {"2xx": 100}, "main@2": {"5xx": 30}}
    await world.gateway.report(default__echo=RouteDemand(completed=30, answers=answers))
    await until(lambda: world.status(made) == "failed")
    await until(lambda: not world.engine.of(2))
    assert asked == [True]


async def test_with_the_comparison_off_it_goes_on(world: World) -> None:
    made = await shifting(world)
    world.store.deployments.update(
        made.id, RevisionDraft(latest(world, made).bento.id, latest(world, made).config), UNCOMPARED
    )
    world.controller.poke(made.id)
    await until(lambda: world.state(made).deployment.labels != ())
    answers = {"main@1": {"2xx": 600}, "main@2": {"5xx": 30}}
    await world.gateway.report(default__echo=RouteDemand(completed=30, answers=answers))
    await until(lambda: world.state(made).answers.answers == 30)
    assert world.status(made) == "deploying"


def latest(world: World, made: Deployment) -> Any:
    found = world.store.deployments.get(made.id)
    assert found is not None
    return found.latest


async def test_a_revision_that_does_not_become_ready_is_stopped(world: World) -> None:
    made = await deployed(world, 2)
    await begun(world, made, Strategy.RECREATE, 2)
    await until(lambda: len(coming(world)) == 2)
    assert world.gateway.routed() == []
    world.engine.ready_at_once = True
    world.engine.become(coming(world)[0], ReplicaState.FAILED, "no such package")
    await until(lambda: world.status(made) == "failed")
    await until(lambda: len(world.gateway.routed()) == 2 and not world.engine.of(2))
    assert len(world.engine.of(1)) == 2


async def test_where_a_pause_and_a_ramp_stand_survives_a_kill(tmp_path: Path) -> None:
    store = QuickStore(tmp_path / "hotplate.db")
    world = World(store, FakeEngine())
    async with running(world):
        made = await shifting(world)
        store.revisions.pause(latest(world, made).id, "ann", paused=True)
        world.controller.poke(made.id)
        await until(lambda: world.controller.live(made.id)["rollout"]["phase"] == "paused")
        await until(lambda: latest(world, made).progress.get("step_at") is not None)
    before = latest(world, made).progress
    assert (before["step"], before["from"]) == (1, 1)
    again = World(store, FakeEngine(survivors=world.engine))
    async with running(again):
        await until(lambda: len(again.gateway.routed()) == 3)
        shown = again.controller.live(made.id)["rollout"]
        assert shown["phase"] == "paused"
        assert "hotplate rollout resume echo" in shown["reason"]
        assert latest(again, made).progress["step_at"] == before["step_at"]
        assert len(again.engine.of(2)) == 1
        assert again.engine.removed == []
    store.close()


async def test_an_update_in_between_keeps_what_serves_until_the_next_does(world: World) -> None:
    made = await shifting(world)
    between = world.engine.of(2)[0].id
    draft = RevisionDraft(world.bento("v3"), following(Strategy.ROLLING, 2))
    world.store.deployments.update(made.id, draft, UNCOMPARED)
    world.controller.poke(made.id)
    await until(lambda: bool(world.engine.of(3)) or len(world.engine.of(1)) < 2)
    assert len(world.gateway.routed()) >= 2
    for _ in range(2):
        await until(lambda: any(r.state is ReplicaState.STARTING for r in world.engine.of(3)))
        starting = [r for r in world.engine.of(3) if r.state is ReplicaState.STARTING]
        world.engine.become(starting[0].id, ReplicaState.READY)
        assert len(world.gateway.routed()) >= 2
    await until(lambda: world.status(made) == "running")
    await until(lambda: not world.engine.of(1) and not world.engine.of(2))
    assert between in world.engine.removed


async def test_without_room_for_one_more_it_waits_and_says_so(world: World) -> None:
    world.store.quotas.set("default", {"replicas": 2})
    world.controller.quotas_changed()
    made = await deployed(world, 2)
    await begun(world, made, Strategy.ROLLING, 2)
    await until(lambda: "of 1 granted" in str(world.state(made).deployment.reason))
    assert (len(world.engine.of(1)), world.engine.of(2)) == (2, [])
    assert world.state(made).deployment.reason.startswith("it waits: 0 of 1 granted")
    draft = RevisionDraft(world.bento("v3"), following(Strategy.CONTROLLED, 2))
    world.store.deployments.update(made.id, draft, None)
    world.engine.ready_at_once = True
    world.controller.poke(made.id)
    await until(lambda: world.status(made) == "running")
    await until(lambda: len(world.engine.of(3)) == 2 and not world.engine.of(1))


async def test_only_the_last_revisions_are_kept(world: World) -> None:
    made = await deployed(world, 1)
    for number in range(2, 14):
        world.update(made, f"v{number}")
        await until(lambda: world.status(made) == "running")
        await until(lambda: len(world.engine.replicas()) == 1)
    await until(lambda: len(world.store.revisions.numbers(made.id)) <= 11)
    found, total = world.store.revisions.page(made.id, 1, 2)
    assert [revision.number for revision in found] == [12, 11]
    assert total in (10, 11)
