"""A canary, as the client writes it and reads it back."""

from __future__ import annotations

from typing import Any

import pytest

from hotplate.platform.store.parts import Store
from tests.support.control_plane.cloud import Cloud, Refused
from tests.support.control_plane.controller_fake import FakeController

ONE = "/api/v2/deployments/echo"


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
    path = "/api/v1/hotplate/deployments/echo/rollout"
    with pytest.raises(Refused, match=r"409.*'other'.*its versions are next"):
        await pushed.call("POST", path, {"action": "promote", "version": "other"})
    await pushed.call("POST", path, {"action": "promote", "version": "next"})
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
        (canary(route_type="query", route_by=" "), r"400.*parameter of the query"),
    ],
)
async def test_a_canary_that_makes_no_sense_is_refused(pushed: Cloud, asked: Any, why: str) -> None:
    with pytest.raises(Refused, match=why):
        await pushed.deploy(canary=asked)
