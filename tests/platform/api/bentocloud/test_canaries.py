"""A canary, as the client writes it and reads it back."""

from __future__ import annotations

from typing import Any

import pytest

from hotplate.platform.controller.interface import Rollout
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import RolloutOutcome
from tests.support.control_plane.cloud import Cloud, Refused
from tests.support.control_plane.controller_fake import FakeController

ONE = "/api/v2/deployments/echo"
ROLLOUT = "/api/v1/hotplate/deployments/echo/rollout"


@pytest.fixture
async def pushed(cloud: Cloud) -> Cloud:
    for version in ("v1", "v2", "v3"):
        await cloud.push_bento(version=version)
    return cloud


def canary(weight: int = 10, **more: Any) -> dict[str, Any]:
    version = {"bento": "echo:v2", "weight": weight, "envs": [{"name": "A", "value": "b"}]}
    return {"versions": {"next": version}, **more}


async def test_versions_stand_beside_main_in_answers(pushed: Cloud) -> None:
    made = await pushed.deploy(canary=canary(route_type="header", route_by="X-User"))
    targets = made["latest_revision"]["targets"]
    assert [target["name"] for target in targets] == ["main", "next"]
    assert [target["bento"]["version"] for target in targets] == ["v1", "v2"]
    assert targets[1]["config"]["envs"] == [{"name": "A", "value": "b"}]
    assert made["manifest"]["routing"] == {
        "route_type": "header",
        "route_by": "X-User",
        "weights": {"main": 90, "next": 10},
    }
    listed = await pushed.call("GET", "/api/v2/deployments")
    assert [item["name"] for item in listed["items"]] == ["echo"]
    rollout = await pushed.call("GET", "/api/v1/hotplate/deployments/echo/rollout")
    assert rollout["to"] == 1


async def test_other_weights_make_no_revision_and_no_canary_ends_it(
    pushed: Cloud, controller: FakeController, store: Store
) -> None:
    await pushed.deploy(canary=canary())
    await controller.settled()
    changed = await pushed.call("PUT", ONE, {"bento": "echo:v1", "canary": canary(30)})
    assert changed["manifest"]["routing"]["weights"] == {"main": 70, "next": 30}
    assert [t["name"] for t in changed["latest_revision"]["targets"]] == ["main", "next"]
    assert changed["latest_revision"]["name"] == "1"
    (version,) = store.deployments.find(pushed.user.organization.id, "echo").versions
    assert version.latest.number == 1
    again = {"versions": None, "route_type": "random"}
    ended = await pushed.call("PUT", ONE, {"bento": "echo:v1", "canary": again})
    assert ended["manifest"] == {"dev": False}
    assert [t["name"] for t in ended["latest_revision"]["targets"]] == ["main"]
    await controller.settled()
    assert len(store.deployments.all()) == 1


async def test_a_weight_that_grows_keeps_its_parts(pushed: Cloud, store: Store) -> None:
    def parts() -> list[list[float]]:
        found = store.deployments.find(pushed.user.organization.id, "echo")
        return found.canary["parts"]["next"]  # type: ignore[no-any-return]

    await pushed.deploy(canary=canary(10))
    assert parts() == [[0.0, 10]]
    await pushed.call("PUT", ONE, {"bento": "echo:v1", "canary": canary(20)})
    assert parts() == [[0.0, 20]]


async def test_promote_makes_a_version_main(pushed: Cloud, controller: FakeController) -> None:
    await pushed.deploy(canary=canary())
    await controller.settled()
    with pytest.raises(Refused, match=r"409.*'other'.*its versions are next"):
        await pushed.call("POST", ROLLOUT, {"action": "promote", "version": "other"})
    await pushed.call("POST", ROLLOUT, {"action": "promote", "version": "next"})
    await controller.settled()
    found = await pushed.call("GET", ONE)
    (target,) = found["latest_revision"]["targets"]
    assert (target["name"], target["bento"]["version"]) == ("main", "v2")
    assert found["manifest"] == {"dev": False}


async def test_a_version_shares_its_deployment_s_life(
    pushed: Cloud, controller: FakeController, store: Store
) -> None:
    await pushed.deploy(canary=canary())
    await controller.settled()
    await pushed.call("POST", f"{ONE}/terminate")
    await controller.settled()
    assert {each.wanted for each in store.deployments.all()} == {"terminated"}
    await pushed.call("PUT", ONE, {"bento": "echo:v1", "canary": canary()})
    await controller.settled()
    assert {each.wanted for each in store.deployments.all()} == {"running"}
    with pytest.raises(Refused, match="404"):
        await pushed.call("GET", f"{ONE}%23next")
    await pushed.call("DELETE", ONE)
    await controller.settled()
    assert store.deployments.all() == []


async def test_a_version_that_is_not_ready_is_not_promoted(
    pushed: Cloud, controller: FakeController, store: Store
) -> None:
    await pushed.deploy()
    await controller.settled()
    controller.goes_on(Rollout("revision 1 is starting"))
    await pushed.call("PUT", ONE, {"bento": "echo:v1", "canary": canary()})
    asked = {"action": "promote", "version": "next"}
    with pytest.raises(Refused, match=r"409.*'next'.*is not ready yet.*hotplate rollout echo"):
        await pushed.call("POST", ROLLOUT, asked)
    (version,) = store.deployments.find(pushed.user.organization.id, "echo").versions
    store.revisions.conclude_rollout(version.latest.id, RolloutOutcome.FAILED, "no nope", "failed")
    with pytest.raises(Refused, match=r"409.*'next'.*could not start \(no nope\)"):
        await pushed.call("POST", ROLLOUT, asked)
    shown = await pushed.call("GET", ONE)
    assert shown["manifest"]["routing"]["weights"] == {"main": 90, "next": 10}


async def test_a_version_with_a_ready_replica_is_promoted_before_it_has_all(
    pushed: Cloud, controller: FakeController
) -> None:
    await pushed.deploy()
    await controller.settled()
    controller.goes_on(Rollout("revision 1 is starting"))
    await pushed.call("PUT", ONE, {"bento": "echo:v1", "canary": canary()})
    controller.ready_replicas = {"next": 1}
    await pushed.call("POST", ROLLOUT, {"action": "promote", "version": "next"})
    found = await pushed.call("GET", ONE)
    assert found["latest_revision"]["targets"][0]["bento"]["version"] == "v2"


async def test_the_same_again_changes_nothing(
    pushed: Cloud, controller: FakeController, store: Store
) -> None:
    body: dict[str, Any] = {"bento": "echo:v1"}
    body |= {"canary": canary(route_type="query", route_by="user id")}
    await pushed.deploy(**body)
    await controller.settled()

    def there() -> Any:
        found = store.deployments.find(pushed.user.organization.id, "echo")
        return found.latest.number, found.canary, [each.latest.number for each in found.versions]

    before = there()
    for _ in range(2):
        await pushed.call("PUT", ONE, body)
        await controller.settled()
    assert there() == before
    assert before[2] == [1]


async def test_no_version_is_woken_beyond_the_quota(
    pushed: Cloud, controller: FakeController, store: Store
) -> None:
    await pushed.deploy(canary=canary())
    await controller.settled()
    await pushed.call("POST", f"{ONE}/terminate")
    await controller.settled()
    store.quotas.set(pushed.user.organization.name, {"replicas": 2})
    await pushed.deploy("other")
    await controller.settled()
    with pytest.raises(Refused, match=r"quota of organization 'acme' is 2"):
        await pushed.call("PUT", f"{ONE}/void_update")
    assert {each.name: each.wanted for each in store.deployments.all()} == {
        "echo": "terminated",
        "echo#next": "terminated",
        "other": "running",
    }
    await pushed.call("DELETE", "/api/v2/deployments/other")
    await controller.settled()
    await pushed.call("PUT", f"{ONE}/void_update")
    assert {each.wanted for each in store.deployments.all()} == {"running"}


async def test_a_stopped_version_has_no_weight(pushed: Cloud, store: Store) -> None:
    await pushed.deploy(canary=canary())
    found = store.deployments.find(pushed.user.organization.id, "echo")
    store.deployments.stop_version(found.id, "next", "it fails")
    store.deployments.stop_version(found.id, "next", "it fails")
    shown = await pushed.call("GET", ONE)
    assert shown["manifest"]["routing"]["weights"] == {"main": 100, "next": 0}
    kinds = [event.kind for event in store.history.events(found.id)]
    assert kinds.count("CanaryStopped") == 1


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"versions": {"main": {"bento": "echo:v2"}}}, r"400.*'main' is the deployment itself"),
        ({"versions": {"a b": {"bento": "echo:v2"}}}, r"400.*is no name of a version"),
        ({"versions": {"next": {}}}, r"400.*canary.versions.next.bento.*names no bento"),
        ({"versions": {"next": {"bento": "echo:v9"}}}, r"400.*'echo:v9' does not exist"),
        (canary(101), r"400.*101 is above 100"),
        ({"versions": {"next": {"bento": "echo:v2", "weight": 2.5}}}, r"400.*weight.*2\.5"),
        (canary(-1), r"400.*-1 is below 0"),
        (
            {
                "versions": {
                    "a": {"bento": "echo:v2", "weight": 60},
                    "b": {"bento": "echo:v2", "weight": 41},
                }
            },
            r"400.*weights are 101 together",
        ),
        (canary(route_type="heder"), r"400.*did you mean 'header'"),
        (canary(route_type="header"), r"400.*canary.route_by: route_type 'header' needs the name"),
        (canary(route_type="header", route_by="X-User:"), r"400.*'X-User:' is no name of a header"),
        (canary(route_type="query", route_by=" "), r"400.*parameter of the query"),
    ],
)
async def test_a_canary_that_makes_no_sense_is_refused(pushed: Cloud, asked: Any, why: str) -> None:
    with pytest.raises(Refused, match=why):
        await pushed.deploy(canary=asked)
