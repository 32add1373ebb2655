"""The stock bentoml client, unmodified, against the API."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.platform.cloud import Cloud
from tests.platform.controller_fake import FakeController

pytestmark = [pytest.mark.client, pytest.mark.timeout(60)]

SERVICE = """
import bentoml

image = bentoml.images.Image(lock_python_packages=False)


@bentoml.service(image=image)
class Echo:
    weights = bentoml.models.BentoModel("bert:1")

    @bentoml.api
    def echo(self, text: str) -> str:
        return text
"""

BUILD = """
import pathlib, bentoml
with bentoml.models.create("bert:1") as model:
    pathlib.Path(model.path_of("weights.bin")).write_bytes(bytes(range(256)) * 4096)
with bentoml.models.create("large:1") as model:
    with open(model.path_of("weights.bin"), "wb") as file:
        file.truncate(101 << 20)
        file.write(b"begins")
bentoml.bentos.build("service:Echo", version="v1", name="echo", labels={"made": "here"})
"""


@dataclass(frozen=True)
class Laptop:
    """One `BENTOML_HOME`."""

    home: Path

    async def bentoml(
        self, *arguments: str, cloud: Cloud | None = None, fails: bool = False
    ) -> str:
        """What the command prints. Fails unless it exits as expected."""
        environment = dict(self.environment)
        if cloud is not None:
            environment["BENTO_CLOUD_API_KEY"] = cloud.token
            environment["BENTO_CLOUD_API_ENDPOINT"] = str(cloud.server.make_url("/"))
        return await run(
            [str(Path(sys.executable).with_name("bentoml")), *arguments],
            environment,
            self.home,
            fails,
        )

    @property
    def environment(self) -> Mapping[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("BENTO", "PYTHON"))}
        return kept | {
            "BENTOML_HOME": str(self.home),
            "BENTOML_DO_NOT_TRACK": "True",
            "COLUMNS": "500",
        }


async def run(command: list[str], environment: Mapping[str, str], folder: Path, fails: bool) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output = (await process.communicate())[0].decode()
    assert (process.returncode != 0) == fails, output
    return output


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Laptop:
    """A laptop with a bento and its model, made once for all tests."""
    folder = tmp_path_factory.mktemp("laptop")
    (folder / "service.py").write_text(SERVICE)
    laptop = Laptop(folder)
    build = run([sys.executable, "-c", BUILD], laptop.environment, folder, fails=False)
    asyncio.run(build)
    return laptop


@pytest.fixture
def other(tmp_path: Path) -> Laptop:
    """A laptop that has nothing yet."""
    (tmp_path / "other").mkdir()
    return Laptop(tmp_path / "other")


async def test_login_saves_the_endpoint_and_refuses_a_bad_token(
    cloud: Cloud, other: Laptop
) -> None:
    endpoint = str(cloud.server.make_url("/"))
    login = ("cloud", "login", "--endpoint", endpoint, "--api-token")
    refused = await other.bentoml(*login, "wrong", fails=True)
    assert "Bad credentials" in refused
    said = await other.bentoml(*login, cloud.token)
    assert "ada" in said
    assert cloud.token in (other.home / ".yatai.yaml").read_text()


async def test_a_bento_is_pushed_with_its_model_and_pulled_elsewhere(
    cloud: Cloud, built: Laptop, other: Laptop
) -> None:
    said = await built.bentoml("push", "echo:v1", cloud=cloud)
    assert 'Successfully pushed bento "echo:v1"' in said
    said = await built.bentoml("push", "echo:v1", cloud=cloud)
    assert "Push skipped" in said
    await other.bentoml("pull", "echo:v1", "--with-models", cloud=cloud)
    same("bentos/echo/v1/src/service.py", built, other)
    same("models/bert/1/weights.bin", built, other)


async def test_a_model_is_pushed_in_parts_and_pulled_elsewhere(
    cloud: Cloud, built: Laptop, other: Laptop
) -> None:
    """101 MiB: the client cuts at 100."""
    said = await built.bentoml("models", "push", "large:1", cloud=cloud)
    assert "Successfully pushed model" in said
    await other.bentoml("models", "pull", "large", cloud=cloud)
    same("models/large/1/weights.bin", built, other)


def same(path: str, one: Laptop, other: Laptop) -> None:
    assert (one.home / path).read_bytes() == (other.home / path).read_bytes()


async def test_a_deployment_is_made_listed_and_shown(cloud: Cloud, built: Laptop) -> None:
    said = await built.bentoml(
        *("deploy", "echo:v1", "-n", "my-echo"),
        *("--scaling-min", "0", "--scaling-max", "3", "--instance-type", "cpu.1"),
        *("--env", "FOO=bar", "--label", "team=a"),
        cloud=cloud,
    )
    assert "my-echo" in said
    shown = json.loads(
        await built.bentoml("deployment", "get", "my-echo", "-o", "json", cloud=cloud)
    )
    assert shown["status"]["status"] == "running"
    assert shown["bento"] == "echo:v1"
    scaling = shown["config"]["services"]["Echo"]["scaling"]
    assert (scaling["min_replicas"], scaling["max_replicas"]) == (0, 3)
    listed = await built.bentoml(
        "deployment", "list", "--label", "team=a", "-o", "json", cloud=cloud
    )
    assert [item["name"] for item in json.loads(listed)] == ["my-echo"]
    taken = await built.bentoml(
        "deployment", "create", "echo:v1", "-n", "my-echo", cloud=cloud, fails=True
    )
    assert "'my-echo' already exists" in taken


async def test_a_deployment_is_updated_applied_terminated_started_and_deleted(
    cloud: Cloud, built: Laptop, controller: FakeController
) -> None:
    await built.bentoml("push", "echo:v1", cloud=cloud)
    await cloud.deploy("my-echo", labels=[{"key": "team", "value": "a"}])
    await built.bentoml("deployment", "update", "my-echo", "--scaling-max", "5", cloud=cloud)
    changed = await cloud.call("GET", "/api/v2/deployments/my-echo")
    assert changed["latest_revision"]["name"] == "2"
    assert changed["labels"] == [{"key": "team", "value": "a"}]
    (built.home / "config.yaml").write_text(
        "name: my-echo\nbento: echo:v1\ncluster: default\nservices:\n  Echo:\n    scaling:\n"
        "      min_replicas: 2\n      max_replicas: 2\n"
    )
    await built.bentoml("deployment", "apply", "-f", "config.yaml", cloud=cloud)
    applied = await cloud.call("GET", "/api/v2/deployments/my-echo")
    assert applied["latest_revision"]["name"] == "3"
    await built.bentoml("deployment", "terminate", "my-echo", "--wait", cloud=cloud)
    await built.bentoml("deployment", "update", "my-echo", cloud=cloud)
    await controller.settled()
    assert (await cloud.call("GET", "/api/v2/deployments/my-echo"))["status"] == "running"
    await built.bentoml("deployment", "delete", "my-echo", cloud=cloud)
    gone = await built.bentoml("deployment", "get", "my-echo", cloud=cloud, fails=True)
    assert "not found" in gone.lower()
