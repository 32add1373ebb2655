"""What may be asked of a roll-out while it is under way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from hotplate.deploy.engine import ReplicaState
from hotplate.platform.controller.interface import UNSEEN
from tests.support.control_plane.controller_world import World, running
from tests.support.control_plane.fake_engine import FakeEngine
from tests.support.control_plane.quick_store import QuickStore
from tests.support.patience import until

BUILDING = "its Python environment is being built"
NO_ROOM = "needs 2 GPUs: this machine has none"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    store = QuickStore(tmp_path / "hotplate.db")
    world = World(store, FakeEngine(ready_at_once=False))
    async with running(world):
        yield world
    store.close()


async def test_a_roll_out_says_what_holds_it_up_and_which_build_it_waits_for(world: World) -> None:
    made = world.deploy(least=1)
    await until(lambda: world.engine.found)
    (replica,) = world.engine.found

    world.engine.become(replica, ReplicaState.PENDING, NO_ROOM)
    await until(lambda: NO_ROOM in world.controller.rollout(made.id).reason)
    rollout = world.controller.rollout(made.id)
    assert (rollout.held_up, rollout.over, rollout.build_logs) == (True, False, ())

    world.engine.become(replica, ReplicaState.STARTING, BUILDING, build_log="/build.log")
    await until(lambda: BUILDING in world.controller.rollout(made.id).reason)
    rollout = world.controller.rollout(made.id)
    assert (rollout.held_up, rollout.build_logs) == (True, ("/build.log",))

    def events() -> dict[str, str]:
        return {event.kind: event.message for event in world.store.history.events(made.id)}

    await until(lambda: "Building" in events())
    assert events()["Building"] == rollout.reason == f"service 'Echo': {BUILDING}"

    world.engine.become(replica, ReplicaState.STARTING, "its process runs and is not ready yet")
    await until(lambda: "its process runs" in world.controller.rollout(made.id).reason)
    assert not world.controller.rollout(made.id).held_up

    world.engine.become(replica, ReplicaState.READY)
    await until(lambda: world.controller.rollout(made.id).over)
    assert not world.controller.rollout(made.id).failed


async def test_a_roll_out_that_failed_is_over_until_the_next_one_is_asked_for(world: World) -> None:
    made = world.deploy(least=1)
    await until(lambda: world.engine.found)
    world.engine.become(next(iter(world.engine.found)), ReplicaState.FAILED, "no module")
    await until(lambda: world.controller.rollout(made.id).over)
    rollout = world.controller.rollout(made.id)
    assert rollout.failed
    assert "no module" in rollout.reason
    world.update(made, "v2")
    rollout = world.controller.rollout(made.id)
    assert (rollout.over, rollout.failed) == (False, False), "of what was before nothing is told"


async def test_nothing_is_known_of_what_is_gone(world: World) -> None:
    assert world.controller.rollout(4711) is UNSEEN


async def test_a_clock_that_is_set_forward_fails_no_roll_out(world: World) -> None:
    """To the wall clock, whatever began before is older by as much."""
    made = world.deploy(least=1)
    await until(lambda: world.engine.found)
    (replica,) = world.engine.found
    world.engine.become(replica, ReplicaState.STARTING, BUILDING)
    await until(lambda: BUILDING in world.controller.rollout(made.id).reason)

    found = world.engine.found[replica]
    world.engine.found[replica] = replace(found, created_at=found.created_at - 3600)
    world.engine.become(replica, ReplicaState.STARTING, "it is tried again", restarts=1)
    await until(lambda: "it is tried again" in world.controller.rollout(made.id).reason)
    world.engine.become(replica, ReplicaState.READY)
    await until(lambda: world.controller.rollout(made.id).over)
    assert not world.controller.rollout(made.id).failed
