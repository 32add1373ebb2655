"""The controller says which deployments have changed, when they have and when that is kept."""

from __future__ import annotations

from pathlib import Path

from tests.support.control_plane.controller_world import World, running
from tests.support.control_plane.fake_engine import FakeEngine
from tests.support.control_plane.quick_store import QuickStore
from tests.support.patience import until


async def test_whoever_looks_when_told_sees_the_status_that_there_is_in_the_end(
    tmp_path: Path,
) -> None:
    store = QuickStore(tmp_path / "hotplate.db")
    world = World(store, FakeEngine())
    seen: list[str] = []
    async with running(world):
        watch = world.controller.changes.watch(lambda: look())
        made = world.deploy(least=1)

        def look() -> None:
            if made.id in watch.take():
                seen.append(world.status(made))

        await until(lambda: seen[-1:] == ["running"])
        replicas = world.controller.live(made.id)["replicas"]
        assert [each["state"] for each in replicas] == ["ready"]
        store.deployments.delete(made.id)
        world.controller.poke(made.id)
        count = len(seen)
        await until(lambda: store.deployments.get(made.id) is None)
        await until(lambda: len(seen) > count)
        world.controller.changes.end(watch)
    store.close()
