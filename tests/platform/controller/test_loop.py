"""The controller with a real store, a real WebSocket to a stand-in gateway, and a fake engine."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from hotplate.deploy.engine import ReplicaState
from hotplate.deploy.errors import UnknownReplica
from hotplate.deploy.workload import Workload, WorkloadKey
from hotplate.platform.controller.loading import Loader
from hotplate.platform.controller.status_json import live_json
from hotplate.platform.store.deployments import RevisionDraft
from hotplate.platform.store.records import Deployment
from hotplate.serving.gateway.protocol.routes import RouteDemand
from tests.support.control_plane.cloud import MANIFEST
from tests.support.control_plane.controller_world import RULES, World, config, running
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


async def test_a_deploy_ends_ready_and_sleeps_without_requests(world: World) -> None:
    made = world.deploy(least=0)
    await world.controller.outcome(made.id, 5)
    await until(lambda: world.status(made) == "scaled-to-zero")
    await until(lambda: not world.engine.found)
    assert world.store.history.cold_starts(made.id)
    assert "RolloutReady" in [event.kind for event in world.store.history.events(made.id)]


async def test_a_step_without_descriptors_is_logged_as_a_sentence_and_repeated(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.engine.failure = OSError(errno.EMFILE, "Too many open files", "replicas")
    made = world.deploy(least=1)
    await until(lambda: "this step failed and will be repeated" in caplog.text)
    assert "Too many open files" in caplog.text
    assert "Traceback" not in caplog.text
    world.engine.failure = None
    await until(lambda: world.status(made) == "running")


async def test_a_request_wakes_it_and_the_decision_is_kept_with_its_reason(world: World) -> None:
    made = world.deploy(least=0)
    await until(lambda: world.status(made) == "scaled-to-zero" and not world.engine.found)
    await world.gateway.report(default__echo=RouteDemand(queued=1))
    await until(lambda: len(world.gateway.routed()) == 1)
    await until(lambda: world.store.history.decisions(made.id)[0].desired == 1)
    assert world.store.history.decisions(made.id)[0].reason
    assert world.controller.live(made.id)["services"][0]["desired"] == 1


async def test_replicas_follow_demand_up_and_down_and_drain_first(world: World) -> None:
    made = world.deploy(least=0)
    await until(lambda: world.status(made) == "scaled-to-zero" and not world.engine.found)
    await world.gateway.report(default__echo=RouteDemand(in_flight=1, queued=2, service_s=60))
    await until(lambda: len(world.gateway.routed()) == 3)
    busy = world.gateway.routed()[0]
    await world.gateway.report(default__echo=RouteDemand(in_flight=0, busy={busy: 1}))
    await until(lambda: list(world.engine.found) == [busy])
    assert busy not in world.engine.removed
    assert world.gateway.routed() == []
    await world.gateway.report(default__echo=RouteDemand())
    await until(lambda: not world.engine.found)


async def rolling_out(world: World) -> tuple[Deployment, list[str]]:
    """A deployment whose second revision is starting, and the replicas of its first."""
    made = world.deploy(least=1)
    await until(lambda: world.status(made) == "running" and world.gateway.routed())
    old = world.gateway.routed()
    world.engine.ready_at_once = False
    world.update(made, "v2")
    await until(lambda: len(world.engine.of(2)) == 1)
    return made, old


async def test_a_rollout_switches_only_when_the_new_revision_answers(world: World) -> None:
    made, old = await rolling_out(world)
    assert world.status(made) == "deploying"
    assert world.gateway.routed() == old
    world.engine.become(world.engine.of(2)[0].id, ReplicaState.READY)
    await until(lambda: world.status(made) == "running" and not world.engine.of(1))
    await until(lambda: world.gateway.routed() == [world.engine.of(2)[0].id])
    assert world.engine.removed == old


async def test_a_revision_that_cannot_start_fails_and_the_old_one_serves_on(world: World) -> None:
    made, old = await rolling_out(world)
    world.engine.become(world.engine.of(2)[0].id, ReplicaState.FAILED, "no such package: nope")
    await world.controller.outcome(made.id, 5)
    found = world.store.deployments.get(made.id)
    assert found is not None
    assert found.status == "failed"
    assert "no such package: nope" in found.reason
    assert world.gateway.routed() == old
    await until(lambda: not world.engine.of(2))


async def test_gateways_learn_what_a_replica_is_waited_for(world: World) -> None:
    world.engine.ready_at_once = False
    world.deploy(least=1)

    def told() -> str:
        route = world.gateway.route()
        return route.waits_for if route else ""

    await until(lambda: told() == "revision 1 is starting")
    (name,) = world.engine.found
    world.engine.become(name, ReplicaState.PENDING, reason="64 GPUs: this machine has 0")
    await until(lambda: told() == "service 'Echo': 64 GPUs: this machine has 0")
    world.engine.become(name, ReplicaState.READY)
    await until(lambda: world.gateway.routed() == [name] and told() == "")


async def test_the_outcome_is_waited_for_and_no_longer_than_asked(world: World) -> None:
    world.engine.ready_at_once = False
    made = world.deploy(least=1)
    await until(lambda: bool(world.engine.found))
    began = asyncio.get_running_loop().time()
    await world.controller.outcome(made.id, 0.05)
    assert asyncio.get_running_loop().time() - began >= 0.05
    waiting = asyncio.create_task(world.controller.outcome(made.id, 5))
    world.engine.become(next(iter(world.engine.found)), ReplicaState.READY)
    await waiting
    assert world.status(made) == "running"


async def test_nobody_waits_for_an_outcome_of_a_controller_that_ends(tmp_path: Path) -> None:
    store = QuickStore(tmp_path / "hotplate.db")
    world = World(store, FakeEngine(ready_at_once=False))
    async with running(world):
        made = world.deploy(least=1)
        await until(lambda: world.engine.found)
        waiting = asyncio.create_task(world.controller.outcome(made.id, timeout_s=60))
        await asyncio.sleep(0)
    async with asyncio.timeout(1):
        await waiting
    store.close()


async def test_terminating_drains_and_refuses_and_an_update_starts_again(world: World) -> None:
    made = await world.deploy_running()
    world.store.deployments.terminate(made.id)
    world.controller.poke(made.id)
    await until(lambda: world.status(made) == "terminated")
    assert not world.engine.found
    route = world.gateway.route()
    assert route is not None
    assert "is terminated" in route.refuse
    world.update(made, "v2")
    await until(lambda: world.status(made) == "running")
    await until(lambda: len(world.gateway.routed()) == 1)


async def deploy_with_a_short_timeout(world: World) -> tuple[Deployment, str]:
    """A deployment whose requests may take 0.1 s, and its only replica."""
    config = {"traffic": {"timeout": 0.1}}
    manifest = {**MANIFEST, "services": [{"name": "Echo", "config": config}]}
    made = world.deploy(least=1, manifest=manifest)
    await until(lambda: len(world.gateway.routed()) == 1)
    (name,) = world.gateway.routed()
    return made, name


async def test_terminating_is_not_held_up_by_a_request_that_never_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotplate.platform.controller.deployment_state.DRAIN_MARGIN_S", 0.3)
    made, name = await deploy_with_a_short_timeout(world)
    await world.gateway.report(default__echo=RouteDemand(in_flight=1, busy={name: 1}))
    world.store.deployments.terminate(made.id)
    world.controller.poke(made.id)
    await until(lambda: world.status(made) == "terminating")
    await until(lambda: world.status(made) == "terminated")
    assert not world.engine.found
    (cut,) = [event for event in world.store.history.events(made.id) if event.kind == "DrainCut"]
    assert cut.message.startswith(f"replica {name} is stopped before its requests have ended")


async def test_the_page_is_whole_while_a_new_revision_is_read(tmp_path: Path) -> None:
    """It is read in a thread, and the page is made from what was known before."""
    store = QuickStore(tmp_path / "hotplate.db")
    world = World(store, FakeEngine())
    made = world.deploy(least=1)
    loader = Loader(store, RULES)
    known = loader.load(made.id, (), None)
    assert known is not None
    store.deployments.update(made.id, RevisionDraft(world.bento("v2"), config(1, 3)), labels=None)
    found = loader.load(made.id, (), known)
    assert found is not None
    revisions = [
        [service["revision"] for service in live_json(state, [])["services"]]
        for state in (known, found)
    ]
    assert revisions == [[1], [2]]
    store.close()


async def test_a_rollout_cuts_no_task_and_what_is_left_after_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotplate.platform.controller.deployment_state.STREAMS_S", 0.0)
    monkeypatch.setattr("hotplate.platform.controller.deployment_state.DRAIN_MARGIN_S", 0.1)
    made, old = await deploy_with_a_short_timeout(world)
    stuck = RouteDemand(in_flight=2, busy={old: 2})
    await world.gateway.report(default__echo=replace(stuck, tasks={old: 1}))
    world.update(made, "v2")
    await until(lambda: world.controller.live(made.id)["replicas"][0]["state"] == "draining")
    patience_s = world.state(made).patience_s(world.engine.found[old])
    assert patience_s >= 3600
    await asyncio.sleep(0.3)  # more than it would have without the task
    assert old in world.engine.found
    await world.gateway.report(default__echo=stuck)
    await until(lambda: old not in world.engine.found)
    await until(lambda: "DrainCut" in [event.kind for event in world.store.history.events(made.id)])


async def test_a_deleted_deployment_is_forgotten_with_its_route(world: World) -> None:
    made = await world.deploy_running()
    world.store.deployments.delete(made.id)
    world.controller.poke(made.id)
    await until(lambda: world.status(made) == "gone")
    await until(lambda: world.gateway.route() is None)
    assert not world.engine.found


async def test_nothing_is_kept_of_past_revisions_and_deleted_deployments(world: World) -> None:
    controller = world.controller
    made = world.deploy(least=1)

    def replaced() -> bool:
        found = world.store.deployments.get(made.id)
        revisions = {replica.key.revision for replica in world.engine.found.values()}
        return (
            found is not None
            and found.serving == found.latest
            and revisions == {found.latest.number}
        )

    for version in ("v2", "v3", "v4", "v5"):
        world.update(made, version)
        await until(replaced)
    await until(lambda: set(world.state(made).services) == {5})
    assert {key.revision for key in world.state(made).recommended} == {5}
    await until(lambda: {key.revision for key in controller.states.scaling.known()} == {5})
    learnt = world.state(made).memory_key("Echo")
    assert world.store.learnt.get(learnt) is not None
    assert b"default/echo" in generate_latest(world.registry)
    assert controller.manifests() == frozenset({"f" * 64})
    world.store.deployments.delete(made.id)
    controller.poke(made.id)
    await until(lambda: world.status(made) == "gone")
    await until(lambda: not list(controller.states) and not controller.states.scaling.known())
    assert world.store.learnt.get(learnt) is None
    assert controller.manifests() == frozenset()
    assert b"default/echo" not in generate_latest(world.registry)


async def test_a_name_can_be_used_again_while_the_deleted_one_still_drains(world: World) -> None:
    first = world.deploy(least=1)
    await until(lambda: world.status(first) == "running" and world.gateway.routed())
    old = world.gateway.routed()[0]
    await world.gateway.report(default__echo=RouteDemand(in_flight=1, busy={old: 1}))
    world.store.deployments.delete(first.id)
    world.controller.poke(first.id)
    second = world.deploy(least=1, version="v2")
    await until(lambda: world.status(second) == "running")
    assert old in world.engine.found
    await world.gateway.report(default__echo=RouteDemand())
    await until(lambda: world.status(first) == "gone")
    assert old not in world.engine.found
    assert len(world.engine.found) == 1


async def test_crashes_are_told(world: World) -> None:
    made = await world.deploy_running()
    name = next(iter(world.engine.found))
    world.engine.become(name, ReplicaState.BACKOFF, "killed by signal 9", restarts=1)
    await until(lambda: world.status(made) == "unhealthy")
    kinds = {event.kind: event.message for event in world.store.history.events(made.id)}
    assert "killed by signal 9" in kinds["ReplicaCrashed"]


async def test_who_is_out_and_what_was_refused_is_shown_and_told(world: World) -> None:
    made = world.deploy(least=1)
    await until(lambda: len(world.gateway.routed()) == 1)
    (name,) = world.gateway.routed()

    def shown(of: str) -> dict[str, Any]:
        found: dict[str, Any] = world.controller.live(made.id)[of][0]
        return found

    def told(kind: str) -> list[str]:
        return [
            event.message for event in world.store.history.events(made.id) if event.kind == kind
        ]

    out = RouteDemand(out={name: "it takes no connection"})
    await world.gateway.report(default__echo=out)
    await until(lambda: shown("replicas")["out"] == "it takes no connection")
    assert shown("replicas")["out_since"].startswith("20")
    await world.gateway.report(default__echo=replace(out, queued=1))
    await world.gateway.report(default__echo=RouteDemand(refusals={"share_full": 3}))
    await until(lambda: shown("replicas")["out"] == "" and told("RequestsRefused"))
    (went,), (came,) = told("ReplicaOut"), told("ReplicaIn")
    assert went.startswith(
        f"replica {name} gets no requests: it takes no connection; a gateway tries it"
    )
    assert came.startswith(f"replica {name} gets requests again, after 0.")
    (refused,) = told("RequestsRefused")
    assert refused.startswith("default/echo refused 3 share_full (the queue is full); more rep")
    assert shown("services")["refused"] == {"share_full": 3}


async def test_abandoned_handlers_are_shown_and_keep_no_replica_up(world: World) -> None:
    made = world.deploy(least=0)
    await until(lambda: world.status(made) == "scaled-to-zero" and not world.engine.found)
    await world.gateway.report(default__echo=RouteDemand(in_flight=2))
    await until(lambda: len(world.gateway.routed()) == 1)
    (name,) = world.gateway.routed()

    def shown() -> int:
        found: int = world.controller.live(made.id)["replicas"][0]["abandoned_handlers"]
        return found

    assert shown() == 0
    running = RouteDemand(in_flight=2, busy={name: 2})
    await world.gateway.report(default__echo=replace(running, abandoned={name: 1}))
    await until(lambda: shown() == 1)
    await world.gateway.report(default__echo=RouteDemand(abandoned={name: 2}))
    await until(lambda: world.status(made) == "scaled-to-zero" and not world.engine.found)


async def test_a_deployment_whose_port_another_program_has_is_unhealthy_until_it_is_free(
    world: World,
) -> None:
    made = await world.deploy_running()
    taken = "127.0.0.1:7100 cannot be listened on: Address already in use; it is tried again"
    await world.gateway.report(default__echo=RouteDemand(error=taken))
    await until(lambda: world.status(made) == "unhealthy")
    assert world.controller.live(made.id)["services"][0]["unserved"] == taken
    await world.gateway.report(default__echo=RouteDemand())
    await until(lambda: world.status(made) == "running")
    told = [
        (e.kind, e.message)
        for e in world.store.history.events(made.id)
        if e.kind.startswith("Route")
    ]
    assert sorted(told) == [
        ("RouteServed", "default/echo can be called again"),
        ("RouteUnserved", f"default/echo cannot be called: {taken}"),
    ]


async def test_a_lost_gateway_changes_nothing(world: World) -> None:
    made = world.deploy(least=0)
    await until(lambda: world.status(made) == "scaled-to-zero" and not world.engine.found)
    await world.gateway.report(default__echo=RouteDemand(in_flight=1))
    await until(lambda: len(world.engine.found) == 1)
    await world.gateway.leave()
    await until(lambda: not world.controller.gateways.connected)
    await asyncio.sleep(0.05)
    assert len(world.engine.found) == 1


async def test_a_gateway_that_is_parted_with_answers_and_goes(world: World) -> None:
    async with asyncio.timeout(2):
        await world.controller.gateways.close()
    await until(lambda: not world.controller.gateways.connected)


async def test_one_deployment_that_cannot_be_read_does_not_keep_the_others_from_their_routes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotplate.platform.controller.loop.RETRY_S", 0.01)
    store = QuickStore(tmp_path / "hotplate.db")
    world = World(store, FakeEngine())
    world.deploy(least=1)
    damaged = world.bento("v2", {**MANIFEST, "services": [3]})
    store.deployments.create(world.user, "damaged", RevisionDraft(damaged, config(1, 1)))
    survivors = FakeEngine()
    damaged_key = WorkloadKey("default", "damaged", 1, "Echo")
    await survivors.scale(Workload(damaged_key, "echo", "v2", ""), 1)
    world.engine.found.update(survivors.found)
    async with running(world):
        await until(lambda: world.gateway.route() and world.gateway.routed())
        assert world.engine.expected is None, "what the damaged one wants has not been said"
        assert world.engine.removed == []
    store.close()


async def test_a_log_is_asked_for_by_its_own_deployment(world: World) -> None:
    echo = world.deploy(least=1)
    other = world.store.deployments.create(
        world.user, "other", RevisionDraft(world.bento("v2"), config(1, 1))
    )
    world.controller.poke(other.id)
    await until(lambda: world.status(echo) == world.status(other) == "running")
    (theirs,) = [r.id for r in world.engine.replicas() if r.key.deployment == "other"]
    assert await world.controller.logs(other.id, theirs, 9) == {theirs: [f"{theirs} says hello"]}
    for deployment, replica in ((echo.id, theirs), (12345, theirs), (echo.id, "absent")):
        with pytest.raises(UnknownReplica):
            await world.controller.logs(deployment, replica, 9)


async def test_a_schedule_keeps_replicas_and_the_decision_says_so(world: World) -> None:
    made = world.deploy(least=0)
    await until(lambda: world.status(made) == "scaled-to-zero" and not world.engine.found)
    labels = [
        {"key": "hotplate/schedule", "value": "* * * * *=2"},
        {"key": "hotplate/time-zone", "value": "Europe/Berlin"},
    ]
    latest = made.latest
    world.store.deployments.update(made.id, RevisionDraft(latest.bento.id, latest.config), labels)
    world.controller.poke(made.id)
    await until(lambda: len(world.engine.found) == 2)
    said = "no demand for more, the schedule '* * * * *=2' says 2"
    await until(lambda: said in world.store.history.decisions(made.id)[0].reason)


async def test_at_a_price_of_nothing_no_idle_replica_is_kept(world: World) -> None:
    ours = {"services": {"Echo": {"scaling": {"min_replicas": 0}}}}
    labels = [{"key": "hotplate/price", "value": "0"}]
    made = world.store.deployments.create(
        world.user, "echo", RevisionDraft(world.bento("v1"), ours), labels
    )
    world.controller.poke(made.id)
    await until(lambda: world.status(made) == "scaled-to-zero")  # in one second; at 600 in 91
    assert world.store.history.decisions(made.id)[0].reason.endswith(
        "kept for 1 s (priced keep-alive)"
    )
