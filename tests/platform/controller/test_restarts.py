"""What a controller knows that takes over from one that has ended."""

from __future__ import annotations

from pathlib import Path

from hotplate.platform.store.deployments import RevisionDraft
from hotplate.platform.store.records import DecisionRecord, DesiredState
from hotplate.serving.gateway.protocol.routes import RouteDemand
from tests.support.control_plane.controller_world import World, running
from tests.support.control_plane.fake_engine import FakeEngine
from tests.support.control_plane.quick_store import QuickStore
from tests.support.patience import until


async def test_a_restarted_controller_goes_on_where_the_last_one_was(tmp_path: Path) -> None:
    store = QuickStore(tmp_path / "hotplate.db")
    engine = FakeEngine()
    first = World(store, engine)
    async with running(first):
        made = await first.deploy_running()
    kept = list(engine.found)
    second = World(store, engine)
    async with running(second):
        await until(lambda: second.gateway.routed() == kept)
        await until(lambda: engine.expected == frozenset([engine.found[kept[0]].key]))
        assert list(engine.found) == kept
        assert made.wanted is DesiredState.RUNNING
    store.close()


async def test_a_restarted_controller_replaces_an_adopted_replica_whose_end_is_the_first_change(
    tmp_path: Path,
) -> None:
    store = QuickStore(tmp_path / "hotplate.db")
    first = World(store, FakeEngine())
    async with running(first):
        await first.deploy_running()
    second = World(store, FakeEngine(survivors=first.engine))
    async with running(second):
        await until(lambda: second.gateway.routed() == list(first.engine.found))
        await second.engine.stop_all()
        await until(lambda: len(second.engine.found) == 1)
    store.close()


async def test_a_restarted_controller_knows_what_was_learnt_and_scales_nothing_down_in_panic(
    tmp_path: Path,
) -> None:
    store = QuickStore(tmp_path / "hotplate.db")
    engine = FakeEngine()
    first = World(store, engine)
    async with running(first):
        scaling = {"min_replicas": 0, "max_replicas": 9}
        services = {"services": {"Echo": {"scaling": scaling}}}
        made = store.deployments.create(
            first.user, "echo", RevisionDraft(first.bento("v1"), services)
        )
        first.controller.poke(made.id)
        await until(lambda: first.status(made) == "running")
        await first.gateway.report(default__echo=RouteDemand(queued=3, service_s=30))
        await until(lambda: len(engine.found) == 3)
        name = f"decider/{made.uid}/Echo"
        await until(lambda: (store.learnt.get(name) or {}).get("service_s") == 30)
    learnt = store.learnt.get(name)
    assert learnt["cold_starts_s"], "the roll-out was one"
    store.learnt.put(name, learnt | {"cold_starts_s": [4.0]})
    last = store.history.decisions(made.id)[0]
    second = World(store, engine)
    async with running(second):
        decision = await until(lambda: _reported(store, made.id, last))
        assert decision is not None
        assert (decision.desired, decision.demand, len(engine.found)) == (3, 0, 3)
        await second.gateway.report(default__echo=RouteDemand(in_flight=3, queued=9))
        await until(lambda: "1.25 x the 4 s" in store.history.decisions(made.id)[0].reason)
        assert store.learnt.get(name)["service_s"] == 30
    store.close()


def _reported(store: QuickStore, deployment_id: int, last: DecisionRecord) -> DecisionRecord | None:
    """The newest decision, if it came after the `last` one and a report of the demand."""
    newest = store.history.decisions(deployment_id)[0]
    return None if newest == last or "no report" in newest.reason else newest
