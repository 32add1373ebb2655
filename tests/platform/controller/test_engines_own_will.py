"""The controller with an engine that has a will of its own: it refuses, and ends whom it likes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hotplate.deploy.engine import ReplicaState
from hotplate.serving.gateway.protocol.routes import RouteDemand
from tests.support.control_plane.controller_world import World, running
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


async def test_what_sleeps_may_have_replicas_and_what_is_replaced_only_until_it_has_drained(
    world: World,
) -> None:
    def expected() -> list[int] | None:
        known = world.engine.expected
        return None if known is None else sorted(key.revision for key in known)

    made = world.deploy(least=0)
    await until(lambda: world.status(made) == "scaled-to-zero" and not world.engine.found)
    assert expected() == [1]
    await world.gateway.report(default__echo=RouteDemand(in_flight=1, service_s=60))
    await until(lambda: len(world.gateway.routed()) == 1)
    (old,) = world.gateway.routed()
    await world.gateway.report(default__echo=RouteDemand(in_flight=1, busy={old: 1}))
    world.update(made, "v2")
    await until(lambda: world.status(made) == "running" and bool(world.engine.of(2)))
    assert (expected(), list(world.engine.of(1))) == ([1, 2], [world.engine.found[old]])
    await world.gateway.report(default__echo=RouteDemand(in_flight=1))
    await until(lambda: expected() == [2])
    assert not world.engine.of(1)
    world.store.deployments.terminate(made.id)
    world.controller.poke(made.id)
    await world.gateway.report(default__echo=RouteDemand())
    await until(lambda: world.status(made) == "terminated")
    await until(lambda: expected() == [])


async def test_one_that_is_ended_without_us_ends_its_requests_and_another_takes_its_place(
    world: World,
) -> None:
    world.deploy(least=1)
    await until(lambda: len(world.gateway.routed()) == 1)
    (ended,) = world.gateway.routed()
    await world.gateway.report(default__echo=RouteDemand(in_flight=1, busy={ended: 1}))
    world.engine.become(ended, ReplicaState.STOPPING, "its node is being emptied")
    await until(lambda: len(world.gateway.routed()) == 1 and ended not in world.gateway.routed())
    route = world.gateway.route()
    assert route is not None
    assert ended in {replica.id for replica in route.replicas if replica.draining}
    world.engine.bury()
    await until(lambda: ended not in {r.id for r in (world.gateway.route() or route).replicas})
    assert world.engine.removed == []


async def test_what_the_engine_is_not_let_make_waits_and_says_why(world: World) -> None:
    made = await world.deploy_running()
    (first,) = world.engine.found
    world.engine.refuses = "pods is forbidden: exceeded quota: one, used: pods=1, limited: pods=1"
    await world.gateway.report(default__echo=RouteDemand(in_flight=1, queued=1, service_s=60))
    await until(lambda: len(world.engine.found) == 2)
    await until(lambda: world.engine.refuses in world.reason(made))
    assert (world.status(made), world.gateway.routed()) == ("running", [first])
    events = {e.kind: e.message for e in world.store.history.events(made.id)}
    assert events["Pending"] == world.engine.refuses
    shown = world.controller.live(made.id)["replicas"]
    assert {(r["id"] == first, r["state"], r["node"]) for r in shown} == {
        (True, "ready", "here"),
        (False, "pending", ""),
    }
    workload = world.state(made).services[1][0].workload
    await world.engine.allow(workload)
    await until(lambda: len(world.gateway.routed()) == 2)
    world.engine.refuses = "no more"
    await world.gateway.report(default__echo=RouteDemand(in_flight=2, queued=1, service_s=60))
    await until(lambda: len(world.engine.found) == 3)
    serving = set(world.gateway.routed())
    await world.gateway.report(default__echo=RouteDemand(in_flight=1, busy={first: 1}))
    await until(lambda: list(world.engine.found) == [first])
    assert serving.intersection(world.engine.removed), "its own, and the one that was never made"
    assert set(world.state(made).seen) == serving


async def test_where_another_one_ends_than_was_drained_the_drained_one_serves_again(
    world: World,
) -> None:
    made = world.deploy(least=0)
    await until(lambda: world.status(made) == "scaled-to-zero" and not world.engine.found)
    await world.gateway.report(default__echo=RouteDemand(in_flight=1, queued=1, service_s=60))
    await until(lambda: len(world.gateway.routed()) == 2)
    world.engine.ends_others = True
    busy, idle = world.gateway.routed()
    await world.gateway.report(default__echo=RouteDemand(in_flight=1, busy={busy: 1}))
    await until(lambda: world.engine.found[busy].state is ReplicaState.STOPPING)
    await until(lambda: world.gateway.routed() == [idle])
    route = world.gateway.route()
    assert route is not None and {r.id for r in route.replicas} == {busy, idle}
    world.engine.bury()
    await until(lambda: len((world.gateway.route() or route).replicas) == 1)
    assert world.gateway.routed() == [idle] and idle not in world.engine.removed
