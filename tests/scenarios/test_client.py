"""What a user does with the stock client, from login to delete."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.cold_start import ColdStart
from tests.support.end_to_end.laptop import Laptop, deployed
from tests.support.services.bentos import KITCHEN
from tests.support.services.calling import call

pytestmark = pytest.mark.client

MODEL = """
import pathlib, bentoml
with bentoml.models.create("words:1") as model:
    folder = pathlib.Path(model.path_of("deep/folder"))
    folder.mkdir(parents=True)
    (folder / "words.txt").write_text("some words")
    with (folder.parent / "numbers.bin").open("wb") as file:
        file.truncate(101 << 20)
        file.write(b"begins")
"""
TOLD_S = 5.0
"""The client asks for the status at once, and then every 10 s: the first answer is to be it."""


@pytest.fixture(scope="module")
def other(platform: AnyPlatform, tmp_path_factory: pytest.TempPathFactory) -> Laptop:
    """A laptop that has nothing but a login."""
    return asyncio.run(Laptop.at(tmp_path_factory.mktemp("other"), platform))


def files(folder: Path) -> dict[str, bytes]:
    """Everything below a folder, by path."""
    found = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert found
    return found


async def test_a_login_is_confirmed_and_a_wrong_token_refused(
    platform: AnyPlatform, tmp_path: Path
) -> None:
    other = Laptop(tmp_path, typed=True)
    assert "admin" in await other.login(platform)
    wrong = ("cloud", "login", "--endpoint", platform.url, "--api-token", "wrong")
    said = await other.bentoml(*wrong, fails=True)
    assert "Bad credentials" in said
    assert "Traceback" not in said


async def test_the_folder_of_a_service_is_deployed_and_answers_when_the_command_returns(
    platform: AnyPlatform, laptop: Laptop, kitchen: str
) -> None:
    typed = replace(laptop, typed=True)
    folder = typed.project("from-a-folder", KITCHEN)
    said = await typed.bentoml("deploy", ".", "-n", "from-a-folder", folder=folder)
    ended_at = datetime.now(UTC).timestamp()
    assert "from-a-folder" in said
    url = await platform.url_of("from-a-folder")
    assert await call(f"{url}/echo", text="well done") == "well done"
    (start,) = await platform.ask("from-a-folder", "/cold_starts")
    assert ended_at - ColdStart.of(start).ready_at < TOLD_S
    await platform.delete("from-a-folder")


async def test_a_bento_that_only_the_server_has_is_deployed(
    platform: AnyPlatform, laptop: Laptop, kitchen: str
) -> None:
    bento = await laptop.build("pushed", KITCHEN)
    assert f'Successfully pushed bento "{bento}"' in await laptop.bentoml("push", bento)
    await laptop.bentoml("delete", bento, "-y")
    async with deployed(platform, laptop, bento, "by-tag") as url:
        assert await call(f"{url}/echo", text="by tag") == "by tag"
    async with deployed(platform, laptop, "pushed", "by-name"):
        assert (await platform.ask("by-name"))["bento"] == bento


async def test_a_bento_is_pushed_and_pulled_elsewhere(
    laptop: Laptop, kitchen: str, other: Laptop
) -> None:
    bento = await laptop.build("travelling", KITCHEN)
    await laptop.bentoml("push", bento)
    assert "Push skipped" in await laptop.bentoml("push", bento)
    await other.bentoml("pull", bento)
    where = Path("bentos", "travelling", "v1")
    assert files(other.home / where) == files(laptop.home / where)


async def test_a_model_is_pushed_in_parts_and_pulled_elsewhere(
    laptop: Laptop, other: Laptop
) -> None:
    """101 MiB: the client cuts at 100."""
    await laptop.python(MODEL)
    assert "Successfully pushed model" in await laptop.bentoml("models", "push", "words:1")
    await other.bentoml("models", "pull", "words:1")
    where = Path("models", "words", "1")
    assert files(other.home / where) == files(laptop.home / where)


@pytest.mark.essential
async def test_a_deployment_is_listed_shown_updated_and_applied(
    platform: AnyPlatform, laptop: Laptop, kitchen: str
) -> None:
    async with deployed(platform, laptop, kitchen, "changed", Kitchen=scaling(1, 1)):
        await laptop.bentoml("deployment", "update", "changed", "--label", "team=a")
        listed = await laptop.bentoml("deployment", "list", "--label", "team=a", "-o", "json")
        assert [item["name"] for item in json.loads(listed)] == ["changed"]
        shown = json.loads(await laptop.bentoml("deployment", "get", "changed", "-o", "json"))
        assert shown["status"]["status"] == "running"

        await laptop.bentoml("deployment", "update", "changed", "--scaling-max", "2")
        assert await limits(platform, "changed") == (1, 2)
        config = {"name": "changed", "bento": kitchen, "cluster": "default"}
        file = laptop.home / "applied.yaml"
        file.write_text(json.dumps({**config, "services": {"Kitchen": scaling(0, 4)}}))
        await laptop.bentoml("deployment", "apply", "-f", str(file))
        assert await limits(platform, "changed") == (0, 4)


def scaling(least: int, most: int) -> dict[str, Any]:
    return {"scaling": {"min_replicas": least, "max_replicas": most}}


async def limits(platform: AnyPlatform, name: str) -> tuple[int, int]:
    scaling = (await platform.ask(name))["config"]["services"]["Kitchen"]["scaling"]
    return scaling["min_replicas"], scaling["max_replicas"]


@pytest.mark.essential
async def test_a_deployment_is_terminated_started_again_and_deleted(
    platform: AnyPlatform, laptop: Laptop, kitchen: str
) -> None:
    await laptop.bentoml("deploy", kitchen, "-n", "ended")
    await laptop.bentoml("deployment", "terminate", "ended", "--wait")
    terminated = await platform.ask("ended")
    assert (terminated["status"], terminated["live"]["replicas"]) == ("terminated", [])

    await laptop.bentoml("deployment", "update", "ended")
    assert await call(f"{await platform.url_of('ended')}/echo", text="again") == "again"

    await laptop.bentoml("deployment", "delete", "ended")
    said = await laptop.bentoml("deployment", "get", "ended", fails=True)
    assert "not found" in said.lower()


async def test_mistakes_are_answered_with_a_sentence(laptop: Laptop, kitchen: str) -> None:
    said = await laptop.bentoml("deploy", "nobody-made-this:v1", fails=True)
    assert "Traceback" not in said
    mistake = ("--config-dict", json.dumps({"bento": kitchen, "services": {"Kitchn": {}}}))
    said = await laptop.bentoml("deploy", *mistake, fails=True)
    assert "services.Kitchn: the bento has no such service; did you mean 'Kitchen'?" in said
    reserved = ("--env", "BENTOCLOUD_DEPLOYMENT_URL=http://mine")
    said = await laptop.bentoml("deploy", kitchen, *reserved, fails=True)
    assert (
        "envs[0].name: 'BENTOCLOUD_DEPLOYMENT_URL' is the platform's own in every replica" in said
    )
    said = await laptop.bentoml("deployment", "terminate", "nobody-made-this", fails=True)
    assert "nobody-made-this" in said
