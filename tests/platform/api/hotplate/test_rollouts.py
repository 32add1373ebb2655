"""What may be asked of a roll-out, and done about it, by the API."""

from __future__ import annotations

from typing import Any

import pytest

from hotplate.platform.controller.interface import Rollout
from hotplate.platform.store.parts import Store
from tests.support.control_plane.cloud import Cloud, Refused
from tests.support.control_plane.controller_fake import FakeController

ONE = "/api/v1/hotplate/deployments/echo"


@pytest.fixture
async def deployed(cloud: Cloud, controller: FakeController) -> Cloud:
    """With two revisions, the second of which serves."""
    await cloud.push_bento()
    await cloud.push_bento(version="v2")
    await cloud.deploy()
    await controller.settled()
    await cloud.call("PUT", "/api/v2/deployments/echo", {"bento": "echo:v2"})
    await controller.settled()
    return cloud


async def act(cloud: Cloud, action: str, **more: Any) -> Any:
    return await cloud.call("POST", f"{ONE}/rollout", {"action": action, **more})


async def rolling(cloud: Cloud, controller: FakeController) -> None:
    """A third revision that does not end by itself."""
    controller.goes_on(Rollout("revision 3 is starting"))
    await cloud.call("PUT", "/api/v2/deployments/echo", {"bento": "echo:v1"})
    await controller.settled()


async def test_the_history_says_who_asked_for_what_and_how_it_went(deployed: Cloud) -> None:
    answer = await deployed.call("GET", f"{ONE}/revisions")
    assert answer["total"] == 2
    first, second = reversed(answer["items"])
    assert set(first) == {
        "number",
        "created_at",
        "by",
        "bento",
        "config",
        "outcome",
        "reason",
        "serving",
    }
    assert [(r["number"], r["by"], r["bento"], r["outcome"], r["serving"]) for r in (first, second)]
    assert (first["number"], first["by"], first["bento"], first["serving"]) == (
        1,
        "ada",
        "echo:v1",
        False,
    )
    assert (second["outcome"], second["serving"]) == ("ready", True)
    page = await deployed.call("GET", f"{ONE}/revisions?start=1&count=1")
    assert [r["number"] for r in page["items"]] == [1]
    assert page["total"] == 2


async def test_it_says_how_the_last_one_stands(deployed: Cloud) -> None:
    answer = await deployed.call("GET", f"{ONE}/rollout")
    assert set(answer) == {"strategy", "phase", "from", "to", "reason", "since", "versions"}
    assert (answer["strategy"], answer["phase"], answer["to"]) == ("none", "done", 2)
    (version,) = answer["versions"]
    assert set(version) == {
        "version",
        "revision",
        "bento",
        "weight",
        "share",
        "wanted",
        "ready",
        "answers",
        "answered",
        "failed",
    }
    assert set(version["answers"]) == {"2xx", "3xx", "4xx", "5xx", "broken"}


async def test_what_serves_is_shown_before_the_controller_has_looked(
    deployed: Cloud, controller: FakeController
) -> None:
    before = await deployed.call("GET", f"{ONE}/rollout")
    controller.last_look = before
    answer = await act(deployed, "restart")
    assert (answer["to"], answer["phase"]) == (3, "starting")
    assert answer["versions"] == before["versions"] != []


async def test_undo_makes_a_new_revision_of_an_older_one(
    deployed: Cloud, controller: FakeController
) -> None:
    answer = await act(deployed, "undo")
    assert answer["to"] == 3
    await controller.settled()
    items = (await deployed.call("GET", f"{ONE}/revisions"))["items"]
    assert items[0]["bento"] == "echo:v1"
    assert items[0]["config"] == items[2]["config"]
    await act(deployed, "undo", to=2)
    await controller.settled()
    items = (await deployed.call("GET", f"{ONE}/revisions"))["items"]
    assert (items[0]["number"], items[0]["bento"]) == (4, "echo:v2")


async def test_restart_makes_a_new_revision_of_the_same(
    deployed: Cloud, controller: FakeController
) -> None:
    assert (await act(deployed, "restart"))["to"] == 3
    await controller.settled()
    items = (await deployed.call("GET", f"{ONE}/revisions"))["items"]
    assert items[0]["bento"] == "echo:v2"
    assert items[0]["config"] == items[1]["config"]


async def test_what_there_is_nothing_to_return_to_is_a_conflict(
    cloud: Cloud, controller: FakeController
) -> None:
    await cloud.push_bento()
    await cloud.deploy()
    await controller.settled()
    with pytest.raises(Refused, match=r"409.*no revision before 1"):
        await act(cloud, "undo")
    with pytest.raises(Refused, match=r"404.*has no revision 7"):
        await act(cloud, "undo", to=7)
    with pytest.raises(Refused, match=r"409.*is the latest one"):
        await act(cloud, "undo", to=1)


@pytest.mark.parametrize("action", ["pause", "resume", "abort"])
async def test_what_has_ended_cannot_be_steered(deployed: Cloud, action: str) -> None:
    with pytest.raises(Refused, match=r"409.*that of revision 2 has ended \(ready\)"):
        await act(deployed, action)


async def test_a_pause_begins_once_and_ends_once(
    deployed: Cloud, controller: FakeController, store: Store
) -> None:
    await rolling(deployed, controller)
    with pytest.raises(Refused, match=r"409.*is not paused"):
        await act(deployed, "resume")
    await act(deployed, "pause")
    with pytest.raises(Refused, match=r"409.*is paused already"):
        await act(deployed, "pause")
    await act(deployed, "resume")
    events = await deployed.call("GET", f"{ONE}/events")
    kinds = [event["kind"] for event in events]
    assert "RolloutPaused" in kinds
    assert "RolloutResumed" in kinds


async def test_an_aborted_one_leaves_the_old_revision(
    deployed: Cloud, controller: FakeController, store: Store
) -> None:
    await rolling(deployed, controller)
    assert (await act(deployed, "abort"))["phase"] == "stopped"
    items = (await deployed.call("GET", f"{ONE}/revisions"))["items"]
    assert (items[0]["outcome"], items[0]["reason"]) == ("failed", "ada aborted its roll-out")
    assert items[1]["serving"]
    events = await deployed.call("GET", f"{ONE}/events")
    assert "RolloutStopped" in [event["kind"] for event in events]
    with pytest.raises(Refused, match=r"409"):
        await act(deployed, "abort")


async def test_a_first_roll_out_cannot_be_aborted(cloud: Cloud, controller: FakeController) -> None:
    await cloud.push_bento()
    controller.goes_on(Rollout("revision 1 is starting"))
    await cloud.deploy()
    await controller.settled()
    with pytest.raises(Refused, match=r"409.*no earlier revision that serves"):
        await act(cloud, "abort")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, r"400.*action: there is none"),
        ({"action": "undoo"}, r"400.*did you mean 'undo'"),
        ({"action": 1}, r"400.*action"),
        ({"action": "undo", "to": "x"}, r"400.*to: 'x' is not a whole number"),
        ({"action": "undo", "to": 0}, r"400.*to: 0 is below 1"),
        ({"action": "promote"}, r"400.*version"),
        ({"action": "promote", "version": "next"}, r"409.*has no canary"),
    ],
)
async def test_what_is_no_action_is_refused(deployed: Cloud, body: Any, why: str) -> None:
    with pytest.raises(Refused, match=why):
        await deployed.call("POST", f"{ONE}/rollout", body)


async def test_what_is_terminated_has_no_roll_out(
    deployed: Cloud, controller: FakeController
) -> None:
    await deployed.call("POST", "/api/v2/deployments/echo/terminate")
    await controller.settled()
    with pytest.raises(Refused, match=r"409.*is terminated"):
        await act(deployed, "restart")
    assert (await deployed.call("GET", f"{ONE}/rollout"))["phase"] == "none"


async def test_another_organization_has_no_such_deployment(deployed: Cloud) -> None:
    async with Cloud(deployed.server, deployed.store, "other", name="eve") as other:
        for method, path in (("GET", "rollout"), ("POST", "rollout"), ("GET", "revisions")):
            with pytest.raises(Refused, match="404"):
                await other.call(method, f"{ONE}/{path}", {"action": "abort"})


async def test_a_strategy_that_does_not_exist_is_refused_with_the_nearest(cloud: Cloud) -> None:
    await cloud.push_bento()
    with pytest.raises(Refused, match=r"400.*did you mean 'RollingUpdate'"):
        await cloud.deploy(services={"Echo": {"deployment_strategy": "RolingUpdate"}})
