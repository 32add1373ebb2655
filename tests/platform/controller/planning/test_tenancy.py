"""Where nothing keeps replicas apart, one organization is served and a second is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotplate.autoscaler.sharing.allocation import NO_QUOTA, Quota
from hotplate.deploy.sandbox.isolation import Isolation
from hotplate.deploy.sandbox.launcher import instructions
from hotplate.platform.controller.planning.tenancy import Tenancy
from hotplate.platform.local_node import tenancy_of
from hotplate.platform.settings import PlatformSettings
from hotplate.platform.store.parts import Store
from tests.support.control_plane.cloud import Cloud, Refused
from tests.support.control_plane.controller_fake import FakeController
from tests.support.control_plane.controller_world import RULES, World, running
from tests.support.control_plane.fake_engine import FakeEngine
from tests.support.patience import until

OPEN = Tenancy("unshare: Operation not permitted")


def test_the_first_organization_is_served_and_every_other_refused() -> None:
    assert OPEN.refusal("acme", []) == ""
    assert OPEN.refusal("acme", ["acme", "umbrella"]) == ""
    why = OPEN.refusal("umbrella", ["acme", "umbrella"])
    assert "'umbrella' cannot be served beside 'acme'" in why
    assert "unshare: Operation not permitted" in why and "trust_organizations" in why


def test_within_walls_any_are_served_beside_each_other() -> None:
    assert Tenancy().refusal("umbrella", ["acme"]) == ""
    quotas = {"acme": Quota(weight=2)}
    assert Tenancy().limited(quotas, ["acme", "umbrella"]) == quotas


def test_of_those_that_had_deployments_before_the_first_keeps_its_replicas() -> None:
    quotas = {"acme": Quota(weight=2), "umbrella": Quota(weight=3)}
    limited = OPEN.limited(quotas, ["acme", "umbrella", "cyberdyne"])
    assert limited["acme"] == quotas["acme"]
    for name in ("umbrella", "cyberdyne"):
        assert limited[name].limit == NO_QUOTA.limit._replace(replicas=0)


def test_who_says_that_organizations_trust_each_other_is_believed() -> None:
    isolation = Isolation()  # as where they are refused
    assert isolation.refusal
    assert tenancy_of(isolation.missing, PlatformSettings()).missing == isolation.refusal
    assert tenancy_of(isolation.missing, PlatformSettings(trust_organizations=True)) == Tenancy()


@pytest.mark.parametrize("wall", instructions.WALLS)
def test_each_wall_that_is_missing_keeps_a_second_organization_away(wall: str) -> None:
    isolation = Isolation()
    isolation.refusals = {wall: "the kernel refuses it"}
    tenancy = tenancy_of(isolation.missing, PlatformSettings())
    named = "calls" if wall == instructions.CALLS else wall  # as `hotplate doctor` does
    assert f" ({named}): the kernel refuses it" in tenancy.refusal("umbrella", ["acme"])


async def test_a_second_organization_is_not_made_where_one_is_served(
    cloud: Cloud, store: Store, controller: FakeController
) -> None:
    controller.tenancy = OPEN
    made = Cloud(cloud.server, store, "default", name="root", operator=True)
    async with made as operator:
        await operator.call("POST", "/api/v1/hotplate/organizations", {"name": "early"})
        await cloud.push_bento()
        await cloud.deploy("first")
        with pytest.raises(Refused, match=r"unshare.*trust_organizations = true") as refused:
            await operator.call("POST", "/api/v1/hotplate/organizations", {"name": "late"})
        assert (refused.value.status, refused.value.code) == (403, "alone")


async def test_a_deployment_of_a_second_organization_is_refused(
    cloud: Cloud, store: Store, controller: FakeController
) -> None:
    await cloud.push_bento()
    await cloud.deploy("first")
    async with Cloud(cloud.server, store, "umbrella") as other:
        await other.push_bento()
        await other.deploy("before")  # within walls
        controller.tenancy = OPEN
        for method, path, body in (
            ("POST", "", {"name": "second", "bento": "echo:v1"}),
            ("PUT", "/before", {"bento": "echo:v1"}),
            ("PUT", "/before/void_update", None),
        ):
            with pytest.raises(Refused, match="beside 'acme'") as refused:
                await other.call(method, f"/api/v2/deployments{path}", body)
            assert (refused.value.status, refused.value.code) == (403, "alone")
        await other.call("POST", "/api/v2/deployments/before/terminate")
    await cloud.deploy("more")


async def test_a_second_organization_gets_no_replica_however_it_came(
    store: Store,
) -> None:
    world = World(store, FakeEngine(), rules=replace(RULES, tenancy=OPEN))
    first = world.deploy(least=1)
    world.user = store.identities.ensure_user("umbrella", "bob", "bob@localhost")
    async with running(world):
        second = world.deploy(least=1)
        await until(lambda: world.status(first) == "running")
        world.controller.quotas_changed()

        def reason() -> str:
            found = store.deployments.get(second.id)
            return found.reason if found else ""

        def served() -> set[str]:
            return {replica.key.organization for replica in world.engine.replicas()}

        await until(lambda: "a quota of 0 replicas" in reason())
        await until(
            lambda: served() == {"default"}
        )  # it may have had one before the quota was read
