"""Quotas: refused where a minimum alone is too much, cut where a wish is, exceeded never."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hotplate.autoscaler.sharing.allocation import Quota
from hotplate.autoscaler.sharing.amounts import UNLIMITED, Amounts
from hotplate.deploy.engine import ReplicaState
from hotplate.deploy.workload import Resources, Workload
from hotplate.platform.cli import main
from hotplate.platform.errors import NotFound, QuotaExceeded
from hotplate.platform.store.artifacts import ArtifactDraft
from hotplate.platform.store.database import Database
from hotplate.platform.store.deployments import RevisionDraft
from hotplate.platform.store.identities import ADMIN
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import ORGANIZATION, Deployment, Kind
from hotplate.serving.gateway.protocol.routes import RouteDemand
from tests.support.control_plane.cloud import MANIFEST as CLOUD_MANIFEST
from tests.support.control_plane.cloud import Cloud, Refused
from tests.support.control_plane.controller_fake import FakeController
from tests.support.control_plane.controller_world import MANIFEST, RULES, World, config, running
from tests.support.control_plane.fake_engine import FakeEngine
from tests.support.control_plane.quick_store import QuickStore
from tests.support.patience import until


def scaled(least: int, **more: Any) -> dict[str, Any]:
    return {"services": {"Echo": {"scaling": {"min_replicas": least, "max_replicas": 9}, **more}}}


async def test_of_a_hundred_creates_at_once_as_many_are_made_as_the_quota_allows(
    cloud: Cloud,
) -> None:
    await cloud.push_bento()
    cloud.store.quotas.set("acme", {"replicas": 10})
    creates = (cloud.deploy(f"echo-{n}", **scaled(1)) for n in range(100))
    results = await asyncio.gather(*creates, return_exceptions=True)
    refused = [result for result in results if isinstance(result, Refused)]
    assert len(cloud.store.deployments.of_organization(cloud.user.organization.id)) == 10
    assert len(refused) == 90
    assert {(one.status, one.code) for one in refused} == {(403, "quota_exceeded")}
    assert (
        "always needs 1 replica, and others of the organization 10 replicas; the quota of "
        "organization 'acme' is 10 replicas: set" in refused[0].message
    )


def test_control_planes_of_one_database_do_not_exceed_a_quota_together(database_url: str) -> None:
    stores = [Store(Database(database_url)) for _ in range(4)]
    user = stores[0].identities.ensure_user("acme", "ada", "ada@localhost")
    stores[0].artifacts.ensure_repository(user.organization.id, Kind.BENTO, "echo")
    draft = ArtifactDraft(version="v1", manifest=MANIFEST)
    bento = stores[0].artifacts.create(user.organization.id, Kind.BENTO, "echo", draft).id
    stores[0].quotas.set("acme", {"gpus": 7})
    two_gpus = Amounts(gpus=2, replicas=1)

    def create(number: int) -> bool:
        try:
            name = f"echo-{number}"
            stores[number % 4].deployments.create(
                user, name, RevisionDraft(bento, {}, least=two_gpus)
            )
        except QuotaExceeded:
            return False
        return True

    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(create, range(12)))
    assert made.count(True) == 3
    for store in stores:
        store.close()


async def test_an_update_may_not_grow_beyond_the_quota_and_what_ends_gives_back(
    cloud: Cloud,
) -> None:
    await cloud.push_bento()
    cloud.store.quotas.set("acme", {"replicas": 3})
    await cloud.deploy("one", **scaled(2))
    await cloud.deploy("two", **scaled(1))

    async def update(name: str, least: int) -> Any:
        body = {"bento": "echo:v1", **scaled(least)}
        return await cloud.call("PUT", f"/api/v2/deployments/{name}", body)

    with pytest.raises(Refused, match="always needs 2 replicas, and others"):
        await update("two", 2)
    cloud.store.quotas.set("acme", {"replicas": 1})
    await update("one", 2)
    await update("one", 1)
    await cloud.call("POST", "/api/v2/deployments/one/terminate")
    await update("two", 1)
    with pytest.raises(Refused, match="'one' always needs"):
        await update("one", 1)


async def test_what_min_replicas_take_is_counted_by_resource(cloud: Cloud) -> None:
    manifest = CLOUD_MANIFEST | {
        "services": [{"name": "Echo", "config": {"resources": {"cpu": "500m", "gpu": 2}}}]
    }
    await cloud.push_bento(manifest=manifest)
    cloud.store.quotas.set("acme", {"gpus": 5})
    with pytest.raises(Refused, match=r"needs 6 GPUs; the quota .* is 5 GPUs"):
        await cloud.deploy("large", **scaled(3))
    await cloud.deploy("small", **scaled(2))
    cloud.store.quotas.set("acme", {"gpus": math.inf, "memory_bytes": 4 << 30})
    with pytest.raises(Refused, match="needs 6 GiB of memory, and others of the organization 1 G"):
        await cloud.deploy("typed", **scaled(3, instance_type="cpu.1"))


def test_a_quota_is_kept_by_the_store_and_changed_in_parts(store: Store) -> None:
    store.identities.ensure_user("acme", "ada", "ada@localhost")
    assert store.quotas.get("acme") == Quota()
    store.quotas.set("acme", {"gpus": 4, "standby": 1, "weight": 2, "priority": 1})
    quota = store.quotas.set("acme", {"gpus": math.inf, "cpus": 8})
    assert quota == Quota(UNLIMITED._replace(cpus=8), standby=1, weight=2, priority=1)
    assert store.quotas.all() == {"acme": quota}
    with pytest.raises(NotFound, match="'nobody' does not exist"):
        store.quotas.set("nobody", {"gpus": 1})


async def test_the_operator_sets_quotas_and_others_see_their_own(
    store: Store, cloud: Cloud, controller: FakeController, capsys: pytest.CaptureFixture[str]
) -> None:
    user = store.identities.ensure_user(ORGANIZATION, ADMIN, "a@localhost")
    store.identities.ensure_operator(user)
    admin = store.tokens.add_token(user, "admin", operator=True)
    endpoint = str(cloud.server.make_url("/"))

    async def hotplate(*words: str, token: str = admin) -> tuple[int, str, str]:
        command = ["quota", *words, "--endpoint", endpoint, "--token", token]
        status = await asyncio.to_thread(main, command)
        return status, *capsys.readouterr()

    limits = ("--gpus", "4", "--replicas", "20", "--memory", "64GiB", "--standby", "2")
    status, out, err = await hotplate("set", "acme", *limits, "--weight", "2")
    assert (status, err) == (0, "")
    row = "acme 2 3 2 of 20 0 of 4 1.5 of unlimited 3 of 64 GiB 2"
    assert " ".join(out.splitlines()[-1].split()) == row
    assert controller.quotas_changes == 1
    expected = Amounts(4, math.inf, 64 << 30, 20)
    assert store.quotas.get("acme") == Quota(expected, standby=2, weight=2)
    await hotplate("set", "acme", "--gpus", "unlimited", "--priority", "1")
    assert (store.quotas.get("acme").limit.gpus, store.quotas.get("acme").priority) == (math.inf, 1)
    status, out, _ = await hotplate("acme", token=cloud.token)
    assert (status, "unlimited" in out) == (0, True)
    status, out, _ = await hotplate()
    assert ["acme" in out, ORGANIZATION in out] == [True, True]
    status, out, _ = await hotplate(token=cloud.token)
    assert ["acme" in out, ORGANIZATION in out] == [True, False]
    for words, token, complaint in (
        (("set", "acme", "--gpus", "9"), cloud.token, "needs an operator"),
        ((ORGANIZATION,), cloud.token, "does not exist"),
        (("set", "nobody", "--gpus", "9"), admin, "does not exist"),
        (("set", "acme", "--gpus", "-1"), admin, "--gpus -1 is not a number from 0 on"),
        (("set", "acme", "--replicas", "1.5"), admin, "is not a whole number"),
        (("set", "acme", "--weight", "0"), admin, "--weight 0 is not a number above 0"),
        (("set", "acme", "--priority", "8"), admin, "--priority 8 is not a number from 0"),
        (("set", "acme", "--memory", "lots"), admin, "--memory"),
        (("set", "acme"), admin, "changes nothing"),
        (("set",), admin, "needs one ORGANIZATION"),
        (("acme", "--gpus", "1"), admin, "to set limits, write"),
    ):
        status, out, err = await hotplate(*words, token=token)
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert complaint in err


class SlowEngine(FakeEngine):
    """Its replicas need a while to stop; it knows what there may be at most."""

    most = math.inf
    exceeded = 0

    async def scale(self, workload: Workload, count: int, *, remove: Collection[str] = ()) -> None:
        live = [n for n, r in self.found.items() if r.key == workload.key and r.state in LIVE]
        stay = [name for name in live if name not in remove][:count]
        for name in set(live) - set(stay):
            self.become(name, ReplicaState.STOPPING)
        stopping = {n: r for n, r in self.found.items() if r.state not in LIVE}
        self.found = {n: r for n, r in self.found.items() if n not in stopping}
        self._beside = len(stopping)
        await super().scale(workload, count)
        self.found |= stopping

    def _add(self, workload: Workload) -> None:
        super()._add(workload)
        self.exceeded += len(self.found) + self._beside > self.most


async def test_grants_hold_to_what_there_may_ever_be_and_follow_when_that_changes(
    tmp_path: Path,
) -> None:
    """Today's nodes are no limit where nodes are added: what waits for one is asked for."""
    ten = replace(RULES, resources=lambda config: Resources(memory_bytes=10 << 30))
    engine = FakeEngine()
    engine.grow(Resources(8, 16 << 30))
    store = QuickStore(tmp_path / "hotplate.db")
    world = World(store, engine, rules=ten)
    async with running(world):
        made = world.deploy(least=2)
        await until(lambda: "1 of 2 granted" in current(store, made).reason)
        assert len(engine.found) == 1
        engine.grow(None)
        await until(lambda: len(engine.found) == 2)
        (node,) = engine.capacity().values()
        taken = [replica.resources.memory_bytes for replica in engine.found.values()]
        assert sum(taken) > node.in_all.memory_bytes
        engine.grow(Resources(8, 16 << 30))
        await until(lambda: len(engine.found) == 1)
    store.close()


LIVE = (ReplicaState.STARTING, ReplicaState.READY)


async def test_a_cut_wish_says_so_in_decision_event_and_status_and_follows_the_quota(
    tmp_path: Path,
) -> None:
    store = QuickStore(tmp_path / "hotplate.db")
    world = World(store, FakeEngine())
    store.quotas.set("default", {"replicas": 2})
    async with running(world):
        made = world.deploy(least=0, most=4)
        await until(lambda: world.status(made) == "scaled-to-zero")
        demand = RouteDemand(queued=4, service_s=60)
        await world.gateway.report(default__echo=demand)
        why = (
            "2 of 4 granted: organization 'default' has a quota of 2 replicas and wants 4 replicas"
        )
        await until(lambda: why in current(store, made).reason)
        await until(lambda: current(store, made).status == "running")
        assert len(world.engine.found) == 2
        decision = store.history.decisions(made.id)[0]
        assert decision.desired == 4
        assert why in decision.reason
        cuts = [event.message for event in store.history.events(made.id) if event.kind == "Cut"]
        assert cuts == [f"service 'Echo': {why}"]
        store.quotas.set("default", {"replicas": 3})
        world.controller.quotas_changed()
        await until(lambda: len(world.engine.found) == 3)
        store.quotas.set("default", {"replicas": math.inf})
        world.controller.quotas_changed()
        await until(lambda: len(world.engine.found) == 4)
        await until(lambda: "granted" not in current(store, made).reason)
    store.close()


async def test_at_a_full_quota_a_new_revision_takes_the_place_of_the_old_one(
    tmp_path: Path,
) -> None:
    store = QuickStore(tmp_path / "hotplate.db")
    engine = SlowEngine()
    engine.most = 1
    world = World(store, engine)
    store.quotas.set("default", {"replicas": 1})
    async with running(world):
        made = await world.deploy_running()
        world.update(made, "v2")
        stopping = ReplicaState.STOPPING
        await until(lambda: [r.state for r in engine.found.values()] == [stopping])
        reason = "until its stopping replicas have ended"
        await until(lambda: reason in current(store, made).reason)
        engine.bury()
        await until(lambda: world.status(made) == "running" and world.gateway.routed())
        assert [replica.key.revision for replica in engine.found.values()] == [2]
    assert engine.exceeded == 0
    store.close()


async def test_a_new_wish_takes_the_place_of_an_idle_replica_that_is_only_kept(
    tmp_path: Path,
) -> None:
    store = QuickStore(tmp_path / "hotplate.db")
    world = World(store, FakeEngine())
    world.bento("v1")
    store.quotas.set("default", {"replicas": 1})
    kept = {"services": {"Echo": {"scaling": {"min_replicas": 0, "max_replicas": 3}}}}
    async with running(world):
        bento = store.artifacts.get(world.user.organization.id, Kind.BENTO, "echo", "v1").id
        for name in ("one", "two"):
            made = store.deployments.create(world.user, name, RevisionDraft(bento, kept))
            world.controller.poke(made.id)
            await until(partial(rolled_out, store, made))
        busy = RouteDemand(in_flight=1, service_s=60)
        await world.gateway.report(default__one=busy)
        await until(lambda: deployments(world.engine) == ["one"])
        await world.gateway.report(default__two=RouteDemand(queued=1))
        await asyncio.sleep(0.02)
        assert deployments(world.engine) == ["one"]
        await world.gateway.report(default__one=RouteDemand())
        await until(lambda: deployments(world.engine) == ["two"])
    store.close()


async def test_who_has_to_give_way_is_told_though_nothing_changes_for_it(tmp_path: Path) -> None:
    """The new one may start nothing until then, so no other word reaches the one that has all."""
    store = QuickStore(tmp_path / "hotplate.db")
    world = World(store, FakeEngine())
    world.bento("v1")
    store.quotas.set("default", {"replicas": 2})
    async with running(world):
        bento = store.artifacts.get(world.user.organization.id, Kind.BENTO, "echo", "v1").id
        for name in ("one", "two"):
            made = store.deployments.create(world.user, name, RevisionDraft(bento, config(0, 3)))
            world.controller.poke(made.id)
            await until(partial(rolled_out, store, made))
            await until(lambda: not world.engine.found)
        await world.gateway.report(default__one=RouteDemand(in_flight=2, service_s=600))
        await until(lambda: deployments(world.engine) == ["one", "one"])
        await until(lambda: answering(world, "default/one") == 2)
        await until(lambda: world.controller.gateways.in_force)
        await world.gateway.report(default__two=RouteDemand(queued=1))
        await until(lambda: deployments(world.engine) == ["one", "two"])
    store.close()


def current(store: Store, deployment: Deployment) -> Deployment:
    found = store.deployments.get(deployment.id)
    assert found is not None
    return found


def rolled_out(store: Store, deployment: Deployment) -> bool:
    return "RolloutReady" in [event.kind for event in store.history.events(deployment.id)]


def answering(world: World, name: str) -> int:
    route = world.gateway.route(name)
    return len(route.replicas) if route else 0


def deployments(engine: FakeEngine) -> list[str]:
    return [replica.key.deployment for replica in engine.found.values()]


@pytest.mark.parametrize(
    ("footprint_mib", "quota_gib", "granted"),
    [(0, math.inf, 32), (100, math.inf, 40), (1024, math.inf, 16), (100, 2.0, 4)],
)
async def test_a_machine_is_shared_by_what_replicas_take_and_a_quota_counts_512_mib(
    tmp_path: Path, footprint_mib: int, quota_gib: float, granted: int
) -> None:
    store = QuickStore(tmp_path / "hotplate.db")
    world = World(store, FakeEngine())
    world.engine.footprints["Echo"] = footprint_mib << 20
    store.quotas.set("default", {"memory_bytes": quota_gib * (1 << 30)})
    async with running(world):
        made = world.deploy(least=0, most=40)
        await until(lambda: world.status(made) == "scaled-to-zero")
        await world.gateway.report(default__echo=RouteDemand(queued=40, service_s=60))
        await until(lambda: len(world.engine.found) == granted)
        if granted < 40:
            await until(lambda: f"{granted} of 40 granted" in current(store, made).reason)
    store.close()
