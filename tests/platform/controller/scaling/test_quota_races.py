"""No quota is exceeded, whatever the engine, the gateway and the store do between two moments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.support.control_plane.racing_world import BusyStore, Quarters, walk


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BusyStore]:
    store = BusyStore(tmp_path / "hotplate.db")
    yield store
    store.close()


async def test_what_was_granted_is_told_before_the_engine_can_have_stopped_what_it_counted(
    store: BusyStore,
) -> None:
    quarters = Quarters(store, 3)
    quarters.deploy("one", quarters.bento("v1"))
    await quarters.step("one")
    quarters.engine.step()
    await quarters.step("one", queued=2)
    quarters.engine.step()
    assert quarters.replica_states() == ["ready", "ready"]
    await quarters.step("one", queued=3)
    store.meanwhile = quarters.engine.step
    # The third is made while the second step waits for the store, and stopped while the third does.
    await quarters.step("one", queued=2)
    await quarters.step("one", queued=3)
    quarters.engine.step()
    assert quarters.engine.exceeded == 0
    assert len(quarters.engine.found) == 3


async def test_wishes_of_one_turn_are_stated_before_any_of_them_is_granted(
    store: BusyStore,
) -> None:
    quarters = Quarters(store, 3)
    bento = quarters.bento("v1")
    for name in ("one", "two"):
        quarters.deploy(name, bento)
        await quarters.step(name)
    quarters.engine.step()
    await quarters.step("two", queued=1)
    await quarters.step("one", queued=3)
    allocations = quarters.states.allocations
    assert allocations.affected() == set()
    quarters.gateways.queued = {"acme/one": 0, "acme/two": 3}
    assert quarters.reconciler.foresee(quarters.ids.values())
    await quarters.step("one")  # it gives way to what the second is about to ask for
    await quarters.step("two")
    assert allocations.affected() == set()
    assert quarters.engine.wished() == {"one": 1, "two": 2}


async def test_what_the_engine_has_not_made_yet_is_not_made_for_a_deployment_that_is_gone(
    store: BusyStore,
) -> None:
    quarters = Quarters(store, 3)
    quarters.deploy("one", quarters.bento("v1"))
    await quarters.step("one", queued=2)
    store.deployments.delete(quarters.ids["one"])
    quarters.states.mark_stale(quarters.ids["one"])
    await quarters.step("one")
    assert store.deployments.get(quarters.ids["one"]) is None
    quarters.engine.step()
    assert quarters.replica_states() == []


async def test_no_quota_is_exceeded_whatever_happens_at_any_moment(store: BusyStore) -> None:
    exceeded, full = await walk(store, Random(1), 30)
    assert exceeded == 0
    assert full > 3
