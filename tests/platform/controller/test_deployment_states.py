"""Who waits for a deployment that no step has read yet."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hotplate.platform.controller.deployment_states import DeploymentStates
from tests.support.control_plane.controller_world import World, running
from tests.support.control_plane.fake_engine import FakeEngine
from tests.support.control_plane.quick_store import QuickStore

DEPLOYMENT = 7


async def test_whoever_waits_for_an_outcome_leaves_reading_to_the_steps(tmp_path: Path) -> None:
    """What a second reader put there had no routes: until the next step nobody listened for it, and
    who waited for the state that was lost waited in vain."""
    store = QuickStore(tmp_path / "hotplate.db")
    world = World(store, FakeEngine())
    made = world.deploy(least=1)
    await world.controller.outcome(made.id, 0.05)
    assert world.controller.states.get(made.id) is None
    waiting = asyncio.create_task(world.controller.outcome(made.id, 60))
    await asyncio.sleep(0)
    async with running(world), asyncio.timeout(5):
        await waiting
        assert world.status(made) == "running"
    store.close()


async def test_nobody_waits_for_a_deployment_that_is_not_there() -> None:
    states = DeploymentStates()
    assert await states.read(DEPLOYMENT) is None
    states.expect(DEPLOYMENT)
    waiting = asyncio.create_task(states.read(DEPLOYMENT))
    await asyncio.sleep(0)
    assert not waiting.done()
    states.forget(DEPLOYMENT)
    assert await waiting is None


async def test_nobody_waits_for_a_step_that_will_not_come() -> None:
    states = DeploymentStates()
    states.expect(DEPLOYMENT)
    waiting = asyncio.create_task(states.read(DEPLOYMENT))
    await asyncio.sleep(0)
    states.let_waiters_go()
    assert await waiting is None
