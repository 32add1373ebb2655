"""System packages that nobody installs are told to who deploys."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from hotplate.platform.spec.system_packages import skipped
from tests.support.control_plane.cloud import MANIFEST, Cloud, Refused
from tests.support.control_plane.controller_fake import FakeController

ASK = """
import json
from bentoml._internal.container.frontend.dockerfile import CONTAINER_METADATA
kinds = ("default_install_command", "install_command")
print(json.dumps({name: [of[kind] for kind in kinds] for name, of in CONTAINER_METADATA.items()}))
"""
"""Asked of a process of its own: to import BentoML warns."""


@pytest.fixture(scope="module")
def distributions() -> dict[str, list[str]]:
    """BentoML's own command of each, and the pattern of the author's."""
    said = subprocess.run([sys.executable, "-c", ASK], check=True, capture_output=True)
    found: dict[str, list[str]] = json.loads(said.stdout)
    return found


def of(*commands: Any) -> str:
    return skipped({"image": {"commands": list(commands)}})


def test_what_bentoml_writes_by_itself_is_not_told(distributions: dict[str, list[str]]) -> None:
    for own, _ in distributions.values():
        assert of(own, own) == ""


def test_packages_are_named_of_every_distribution(distributions: dict[str, list[str]]) -> None:
    for own, install in distributions.values():
        said = of(own, install.format(packages="ffmpeg 'libsndfile1>=1'"))
        assert "asks for the system packages ffmpeg, libsndfile1>=1, which are skipped" in said


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("apt-get update && apt-get install -y ffmpeg && rm -rf /var/lib/apt/lists/*", "s ffmpeg,"),
        ("sudo apt -qq install -y \\\n  ffmpeg git", "the system packages ffmpeg, git, which"),
        ("apt-get install -y ffmpeg; apt-get clean", "the system packages ffmpeg, which"),
        ("dnf -y install mesa-libGL", "the system packages mesa-libGL, which"),
        (
            "curl -fsSL https://example.org | sh",
            "the command 'curl -fsSL https://example.org | sh'",
        ),
        ("chmod +x ./env/docker/script__1 && ./env/docker/script__1", "the command 'chmod +x ./e"),
        ("if true; then apt-get install -y x; fi", "the command 'if true; then apt-get ins"),
        ("echo " + "x" * 10_000, "x …', which"),
        ("apt-get install " + " ".join(f"package{n}" for n in range(9_999)), " …, which"),
        ("echo 音 \x1b[31m", "the command 'echo 音"),
    ],
)
def test_what_the_author_wants_is_named(command: str, said: str) -> None:
    told = of("apt-get update", command)
    assert said in told
    assert len(told) < 1300


def test_several_commands_are_counted() -> None:
    told = of("apt-get install x", *(f"echo {number}" for number in range(9)))
    assert "packages x and the commands 'echo 0', 'echo 1'," in told
    assert "'echo 4' and 4 more, which" in told


@pytest.mark.parametrize(
    "image", [None, "debian", [], {}, {"commands": None}, {"commands": "x"}, {"commands": [1, {}]}]
)
def test_an_odd_image_says_nothing(image: Any) -> None:
    assert skipped({"image": image}) == ""


async def test_each_revision_that_asks_for_it_has_the_event(cloud: Cloud) -> None:
    image = {"commands": ["apt-get install -q -y ffmpeg"]}
    await cloud.push_bento("echo", "v1", MANIFEST | {"image": image})
    await cloud.push_bento("echo", "v2")
    await cloud.deploy("chat")

    async def told() -> list[str]:
        events = await cloud.call("GET", "/api/v1/hotplate/deployments/chat/events?count=99")
        return [event["message"] for event in events if event["kind"] == "CommandsSkipped"]

    (said,) = await told()
    assert "the system packages ffmpeg, which are skipped" in said
    await cloud.call("PUT", "/api/v2/deployments/chat", {"bento": "echo:v2"})
    assert await told() == [said]
    await cloud.call("PUT", "/api/v2/deployments/chat", {"bento": "echo:v1"})
    assert await told() == [said, said]
    await cloud.call("PUT", "/api/v2/deployments/chat", {"bento": "echo:v1"})
    assert await told() == [said, said]


async def test_a_bento_whose_commands_nobody_would_run_is_refused_where_that_is_set(
    cloud: Cloud, controller: FakeController
) -> None:
    controller.rules = replace(controller.rules, refuse_commands=True)
    own = ["apt-get update && apt-get install -q -y ca-certificates gnupg2 git"]
    await cloud.push_bento("echo", "v1", MANIFEST | {"image": {"commands": own}})
    await cloud.push_bento("echo", "v2", MANIFEST | {"image": {"commands": [*own, "make fast"]}})
    await cloud.deploy("chat")
    for call in (
        cloud.deploy("second", bento="echo:v2"),
        cloud.call("PUT", "/api/v2/deployments/chat", {"bento": "echo:v2"}),
    ):
        with pytest.raises(Refused) as refusal:
            await call
        assert refusal.value.status == 400
        assert refusal.value.message == (
            "bento: its image asks for the command 'make fast', and this installation runs no "
            'commands of images (image_commands = "refuse"): install on the machine what the '
            "service needs, and leave the commands out of the bento"
        )
