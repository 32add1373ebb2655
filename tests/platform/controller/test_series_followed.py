"""What the series get of a controller: replicas by state, slots that are taken, demand, prices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from hotplate.deploy.engine import ReplicaState
from hotplate.deploy.workload import Resources
from hotplate.platform.controller.planning.ceiling import Ceiling
from hotplate.platform.instance_type import InstanceType
from hotplate.platform.series.points import Point
from hotplate.platform.store.deployments import RevisionDraft
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Deployment
from hotplate.serving.gateway.protocol.route_counts import RouteCounts
from hotplate.serving.gateway.protocol.routes import RouteDemand
from tests.support.control_plane.controller_world import RULES, World, config, running
from tests.support.control_plane.fake_engine import FakeEngine
from tests.support.patience import until

SIZES = {"gpu.l4.1": InstanceType(Resources(4, 1 << 30, 1.0), "L4", price=7.2)}


@pytest.fixture
async def world(store: Store) -> AsyncIterator[World]:
    ceiling = Ceiling(Resources(8, 1 << 34, 1.0))
    rules = replace(RULES, instance_types=SIZES, ceiling=ceiling)
    engine = FakeEngine()
    engine.room = Resources(8, 1 << 34, 1.0)
    world = World(store, engine, rules=rules)
    async with running(world):
        yield world


def point(world: World, of: Deployment) -> Point:
    """Of the step that goes on."""
    points = world.controller.series.unwritten(of.id)
    return points[-1][1] if points else {}


async def test_replicas_are_followed_from_their_start_to_their_end(world: World) -> None:
    made = await world.deploy_running()
    await until(lambda: point(world, made).get("replica_s.idle", 0) > 0)
    assert point(world, made)["cold_starts"] == 1
    assert point(world, made)["wanted_s"] > 0
    (name,) = world.engine.found
    await world.gateway.report(default__echo=RouteDemand(in_flight=1, queued=4, busy={name: 1}))
    await until(lambda: point(world, made).get("replica_s.busy", 0) > 0)
    assert (point(world, made)["in_flight"], point(world, made)["queued"]) == (1, 4)
    world.store.deployments.delete(made.id)
    world.controller.poke(made.id)
    await world.gateway.report(default__echo=RouteDemand())
    await until(lambda: world.status(made) == "gone")
    await until(lambda: point(world, made) == {})


async def test_what_was_counted_of_one_that_is_gone_is_not_its_successors(world: World) -> None:
    gone = await world.deploy_running()
    world.store.deployments.delete(gone.id)
    world.controller.poke(gone.id)
    await until(lambda: world.status(gone) == "gone" and not point(world, gone))
    world.controller.series.counted({"default/echo": RouteCounts(answered=5)})
    made = world.deploy(least=1, version="v2")
    await until(lambda: point(world, made).get("cold_starts", 0) == 1)
    assert point(world, made).get("requests", 0) == 0


async def test_a_replica_that_waits_for_room_has_no_seconds(world: World) -> None:
    world.engine.ready_at_once = False
    made = world.deploy(least=1)
    await until(lambda: bool(world.engine.found))
    (name,) = world.engine.found
    world.engine.become(name, ReplicaState.PENDING, "there is no room")
    await until(lambda: "Pending" in {e.kind for e in world.store.history.events(made.id)})
    seconds: list[float] = []

    def goes_on() -> bool:
        seconds.append(point(world, made).get("wanted_s", 0))
        return seconds[-1] > seconds[0] > 0

    await until(goes_on)
    before = point(world, made).get("replica_s.starting", 0)
    seconds.clear()
    await until(goes_on)
    assert point(world, made).get("replica_s.starting", 0) == before


async def test_a_size_with_a_price_costs_as_long_as_a_replica_has_it(world: World) -> None:
    settings = config(1, 1)
    settings["services"]["Echo"]["instance_type"] = "gpu.l4.1"
    made = world.store.deployments.create(
        world.user, "echo", RevisionDraft(world.bento("v1"), settings)
    )
    world.controller.poke(made.id)
    await until(lambda: point(world, made).get("replica_s.idle", 0) > 0)
    found = point(world, made)
    lived_s = found["replica_s.idle"] + found.get("replica_s.starting", 0)
    assert found["cost"] == pytest.approx(lived_s * 7.2 / 3600, rel=0.05, abs=1e-5)
    assert found["gpu_s.idle"] == pytest.approx(found["replica_s.idle"])
