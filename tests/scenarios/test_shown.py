"""What the stock client shows of a deployment while it waits, when it fails, and when asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.scenarios.readme_steps import Step
from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.laptop import Laptop, deployed
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.services.bentos import ECHO, IMAGE

pytestmark = [pytest.mark.client, pytest.mark.usefixtures("kitchen")]

FAILING_COMMAND = "echo 'the dough is kneaded: käse 🧀'; sleep 4; echo 'the oven is cold'; exit 3"
CANNOT_START = (
    IMAGE
    + ECHO
    + """
    def __init__(self) -> None:
        raise ValueError("the oven is cold")
"""
)
READY = "is ready"


async def reason(platform: AnyPlatform, name: str) -> str:
    said: str = (await platform.ask(name))["reason"]
    return said


async def test_the_clients_terminal_shows_a_build_and_why_it_fails(
    platform: AnyPlatform, laptop: Laptop, rough: RoughClient, bento: Bento
) -> None:
    """It has no packages, which would be installed before it fails."""
    image = {**bento.manifest["image"], "post_commands": [FAILING_COMMAND]}
    image |= {"python_requirements": ""}
    unbuilt = bento.changed("not-built", {"env/python/requirements.txt": ""}, image=image)
    tag = await rough.push(unbuilt)
    said = await laptop.bentoml("deploy", tag, "-n", "not-built", fails=True)
    Step("", "environment is being built…uv pip install…käse 🧀…the oven is cold").check(said)
    assert await reason(platform, "not-built") in said
    assert said.splitlines().count("the oven is cold") == 1, "and not once more at the end"
    assert "| the oven is cold" not in said
    assert 'not ready. Current status: "image-build-failed"' in said
    await platform.delete("not-built")


async def test_a_start_that_fails_at_once_says_why_on_the_clients_terminal(
    platform: AnyPlatform, laptop: Laptop
) -> None:
    bento = await laptop.build("cold", CANNOT_START)
    said = await laptop.bentoml("deploy", bento, "-n", "cold", fails=True)
    assert await reason(platform, "cold") in said
    assert "ValueError: the oven is cold" in said
    assert 'File "' in said, "the last lines of its log"
    assert 'not ready. Current status: "failed"' in said
    assert not [line for line in said.splitlines() if line.startswith("Traceback")]
    shown = await shown_of(laptop, "cold")
    assert note(shown) == await reason(platform, "cold")
    assert shown["status"]["status"] == "failed"
    await platform.delete("cold")


@pytest.mark.one_machine("it is about the room on one machine")
async def test_what_waits_for_room_says_so_on_the_clients_terminal(
    platform: AnyPlatform, laptop: Laptop, kitchen: str
) -> None:
    """Each of the two takes most of the machine's memory, as far as it was promised."""
    node = (await platform.page("platform"))["nodes"][0]
    most_mib = (node["in_all"]["memory_bytes"] * 6 // 10) >> 20
    size = {"resources": {"cpu": "100m", "memory": f"{most_mib}Mi"}}
    greedy = {"scaling": {"min_replicas": 1, "max_replicas": 1}, "config_overrides": size}
    async with deployed(platform, laptop, kitchen, "first", Kitchen=greedy):
        file = laptop.home / "greedy.yaml"
        config = {"name": "greedy", "bento": kitchen, "services": {"Kitchen": greedy}}
        file.write_text(json.dumps(config))
        said = await laptop.bentoml("deploy", "-f", str(file), "--timeout", "12", fails=True)
        waits = await reason(platform, "greedy")
        assert "memory" in waits
        assert f"hotplate: {waits}" in said
        assert "Time out waiting" in said
        events = await platform.ask("greedy", "/events")
        (cut,) = [event["message"] for event in events if event["kind"] == "Cut"]
        assert cut.removeprefix("service 'Kitchen': ") in said
        assert note(await shown_of(laptop, "greedy")) == waits
        await platform.delete("greedy")


async def test_a_warm_deploy_does_not_pause_prints_no_log_and_what_it_shows_is_no_setting(
    platform: AnyPlatform, laptop: Laptop, kitchen: str
) -> None:
    said = await laptop.bentoml("deploy", kitchen, "-n", "warm")
    assert READY in said
    assert "hotplate:" not in said
    assert note(await shown_of(laptop, "warm")) == "1 replica ready"
    before = (await platform.ask("warm"))["config"]
    await laptop.bentoml("deployment", "update", "warm", "--label", "team=a")
    after = await platform.ask("warm")
    assert (after["config"], after["revision"]) == (before, 1), (
        "the reason is not kept by an update"
    )
    await platform.delete("warm")


async def shown_of(laptop: Laptop, name: str) -> Any:
    return json.loads(await laptop.bentoml("deployment", "get", name, "-o", "json"))


def note(shown: Any) -> str:
    extras = shown["config"]["services"]["Kitchen"]["extras"]
    said: str = extras["bento_function_overrides"]["annotations"]["hotplate/reason"]
    return said
