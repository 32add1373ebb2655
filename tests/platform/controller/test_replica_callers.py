"""Deployments that call others by name: with which key, how long that is good, and what their
status says where nobody is there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hotplate.platform.spec.replica_keys import ReplicaKeys
from hotplate.platform.store.deployments import RevisionDraft
from hotplate.platform.store.records import Deployment
from hotplate.platform.store.tokens import token_digest
from tests.support.control_plane.controller_world import MANIFEST, RULES, World, config, running
from tests.support.control_plane.fake_engine import FakeEngine
from tests.support.control_plane.quick_store import QuickStore
from tests.support.patience import until

KEYS = ReplicaKeys("the installation's")


def calling(*dependencies: dict[str, str]) -> dict[str, Any]:
    return MANIFEST | {"services": [{"name": "Echo", "dependencies": list(dependencies)}]}


class Caller:
    """The deployment `echo`, which calls others."""

    def __init__(self, world: World) -> None:
        self.world = world

    def deploy(self, *dependencies: dict[str, str], least: int = 1) -> Deployment:
        return self.world.deploy(least=least, manifest=calling(*dependencies))

    def deploy_other(self, name: str) -> Deployment:
        bento = self.world.bento(f"of-{name}-{len(name)}")
        made = self.world.store.deployments.create(
            self.world.user, name, RevisionDraft(bento, config(0, 1))
        )
        self.world.controller.poke(made.id)
        return made

    @property
    def keys(self) -> list[str]:
        """Those of its replicas."""
        return [KEYS.key(each.key, each.id) for each in self.world.engine.replicas()]

    def at_gateways(self) -> dict[str, set[str]]:
        """By digest, what the keys of the gateways' table are good for."""
        found: dict[str, set[str]] = {}
        for token in self.world.gateway.table.tokens.get("default", ()):
            found.setdefault(token.digest, set()).add(token.deployment)
        return found

    def reason(self, made: Deployment) -> str:
        found = self.world.store.deployments.get(made.id)
        return found.reason if found else "gone"


@pytest.fixture
async def caller(tmp_path: Path) -> AsyncIterator[Caller]:
    store = QuickStore(tmp_path / "hotplate.db")
    world = World(store, FakeEngine(), rules=replace(RULES, keys=KEYS))
    async with running(world):
        yield Caller(world)
    store.close()


async def test_a_key_is_good_for_what_the_bento_names_as_long_as_there_is_its_replica(
    caller: Caller,
) -> None:
    made = caller.deploy(
        {"deployment": "b"}, {"deployment": "c"}, {"deployment": "d", "cluster": "lab"}
    )
    await until(lambda: caller.world.status(made) == "running")
    (key,) = caller.keys
    found = caller.world.controller.replica_with(key)
    assert found is not None
    assert (found.organization.name, set(found.opens)) == ("default", {"b", "c"})
    await until(lambda: caller.at_gateways() == {token_digest(key): {"b", "c"}})
    caller.world.store.deployments.terminate(made.id)
    caller.world.controller.poke(made.id)
    await until(lambda: caller.world.status(made) == "terminated")
    await until(lambda: not caller.at_gateways())
    assert caller.world.controller.replica_with(key) is None, "its replica is gone"


async def test_replicas_that_have_their_variables_from_one_place_have_one_key(
    caller: Caller,
) -> None:
    made = caller.deploy({"deployment": "b"}, least=2)
    await until(lambda: len(caller.keys) == 2 and caller.world.status(made) == "running")
    found = caller.world.engine.found
    for name, replica in found.items():
        found[name] = replace(replica, shared_name="h-echo-1-echo")
    key = KEYS.key(replica.key, "h-echo-1-echo")
    caller.world.controller.poke(made.id)
    await until(lambda: caller.at_gateways() == {token_digest(key): {"b"}})
    assert caller.world.controller.replica_with(key) is not None
    foreign = replace(replica.key, organization="other")
    assert caller.world.controller.replica_with(KEYS.key(foreign, "h-echo-1-echo")) is None
    assert caller.world.controller.replica_with(caller.keys[0]) is None


async def test_no_key_is_made_up_and_who_calls_nobody_has_none(caller: Caller) -> None:
    made = caller.deploy()
    await until(lambda: caller.world.status(made) == "running")
    (replica,) = caller.world.engine.found.values()
    other = ReplicaKeys("another's").key(replica.key, replica.id)
    for key in (*caller.keys, other, "hotplate-replica.", f"hotplate-replica.{replica.id}.", ""):
        assert caller.world.controller.replica_with(key) is None
    assert not caller.at_gateways()


async def test_the_api_has_a_key_of_its_own_where_there_are_protected_deployments(
    caller: Caller,
) -> None:
    world = caller.world
    made = caller.deploy()
    await until(lambda: world.status(made) == "running")
    assert not caller.at_gateways()
    closed = config(1, 1) | {"access_authorization": True}
    made = world.store.deployments.create(
        world.user, "closed", RevisionDraft(world.bento("v2"), closed)
    )
    world.controller.poke(made.id)
    key = KEYS.of_api(made.organization.uid)
    await until(lambda: caller.at_gateways() == {token_digest(key): {""}})
    assert world.controller.call_target(made).key == key
    assert world.controller.replica_with(key) is None, "it asks the API for nothing"
    assert KEYS.of_api("another's") != key
    assert ReplicaKeys().of_api(made.organization.uid) == ""
    assert key.startswith("hotplate-replica."), "gateways pass no such key on"


async def test_who_is_missing_stands_in_the_status_until_it_is_there(caller: Caller) -> None:
    made = caller.deploy({"deployment": "b"})
    missing = "it calls the deployment 'b', which does not exist: deploy it"
    await until(lambda: caller.reason(made) == f"1 replica ready; {missing}")
    assert caller.world.status(made) == "running", "the roll-out waits for no other deployment"
    other = caller.deploy_other("b")
    await until(lambda: caller.reason(made) == "1 replica ready")
    caller.world.store.deployments.terminate(other.id)
    caller.world.controller.poke(other.id)
    await until(lambda: "'b', which was terminated" in caller.reason(made))
    caller.world.store.deployments.delete(other.id)
    caller.world.controller.poke(other.id)
    await until(lambda: caller.reason(made) == f"1 replica ready; {missing}")


async def test_one_that_sleeps_may_be_called_and_is_not_woken_by_a_roll_out(caller: Caller) -> None:
    other = caller.deploy_other("b")
    await until(lambda: caller.world.status(other) == "scaled-to-zero")
    made = caller.deploy({"deployment": "b"})
    await until(lambda: caller.world.status(made) == "running")
    assert caller.reason(made) == "1 replica ready"
    assert caller.world.status(other) == "scaled-to-zero"


async def test_another_cluster_is_none_that_this_installation_knows(caller: Caller) -> None:
    made = caller.deploy({"deployment": "b", "cluster": "lab"}, {"deployment": "c"}, least=0)
    said = "it calls the deployment 'b' in cluster 'lab', and this installation is 'default'"
    more = " (and 1 more that cannot be called)"
    await until(lambda: caller.reason(made).endswith(said + more))
