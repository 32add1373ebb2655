"""`bentoml code`: a folder that runs on the platform, and again after each save."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession, ClientTimeout

from tests.support.end_to_end.code_client import coding
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform
from tests.support.end_to_end.rough_client import RoughClient
from tests.support.end_to_end.searched import places_of
from tests.support.patience import PATIENCE_S, until
from tests.support.services.bentos import IMAGE

pytestmark = [pytest.mark.client, pytest.mark.one_machine("it is about bentoml code")]

SERVICE = (
    IMAGE
    + """

import words


@bentoml.service(image=image)
class Space:
    @bentoml.api
    def say(self) -> str:
        print("asked for a word", flush=True)
        return words.WORD
"""
)

COLOURS = (
    IMAGE
    + """
# more
args = bentoml.use_arguments()


@bentoml.service(image=image)
class Colours:
    @bentoml.api
    def say(self) -> str:
        colour, shade = os.environ["COLOUR"], os.environ["SHADE"]
        return f"{shade} {colour} {getattr(args, 'word', 'and no argument')}"
"""
)


def project(laptop: Laptop, name: str) -> Path:
    folder = laptop.project(name, SERVICE)
    (folder / "words.py").write_text("WORD = 'first'\n")
    return folder


async def says(url: str, word: str) -> float:
    """Wait until the code space answers so; how many seconds that took."""
    now = asyncio.get_running_loop().time
    began = now()
    async with asyncio.timeout(PATIENCE_S), ClientSession(timeout=ClientTimeout(20)) as session:
        while True:
            try:
                async with session.post(f"{url}/say", json={}) as response:
                    if response.status == 200 and await response.text() == word:
                        return now() - began
            except (ClientError, TimeoutError):
                pass
            await asyncio.sleep(0.02)


async def revisions(platform: Platform, name: str = "space") -> list[dict[str, Any]]:
    """Newest first."""
    found: list[dict[str, Any]] = (await platform.ask(name, "/revisions"))["items"]
    return found


@pytest.mark.usefixtures("unharmed", "kitchen")
async def test_a_save_is_answered_with_and_an_error_in_a_module_does_not_lose_the_client(
    platform: Platform, laptop: Laptop
) -> None:
    folder = project(laptop, "space")
    async with coding(laptop, folder) as client:
        await client.begin("space")
        assert [each["number"] for each in await revisions(platform)] == [2, 1], "not per file"
        url = await platform.url_of("space")
        await says(url, "first")
        await client.printed("asked for a word")
        (folder / "words.py").write_text("WORD = 'second'\n")
        await says(url, "second")
        (folder / "words.py").write_text("WORD = \n")
        await client.printed("SyntaxError")
        (folder / "words.py").write_text("WORD = 'repaired'\n")
        await says(url, "repaired")
        assert not client.ended
    async with coding(laptop, folder, "code . --attach space") as again:
        await again.printed("Endpoint:")
        await says(url, "repaired")
    await platform.delete("space")


@pytest.mark.usefixtures("unharmed", "kitchen")
async def test_other_requirements_are_built_and_variables_and_secrets_are_there(
    platform: Platform, laptop: Laptop
) -> None:
    folder = laptop.project("colours", COLOURS)
    (folder / "words.yaml").write_text("word: hi\n")
    dark = token_urlsafe(24)
    await laptop.types(f"secret create shades SHADE={dark}")
    flags = "--env COLOUR=red --secret shades --cluster default --arg word=hi --arg-file words.yaml"
    async with coding(laptop, folder, f"code . {flags}") as client:
        await client.begin("colours")
        url = await platform.url_of("colours")
        await says(url, f"{dark} red and no argument")
        (before,) = {each["bento"] for each in await revisions(platform, "colours")}
        more = COLOURS.replace("# more", "image.python_packages('click>=8')")
        (folder / "service.py").write_text(more.replace("{shade}", "very {shade}"))
        await client.printed("requirements.txt")
        await client.printed("building")
        await says(url, f"very {dark} red and no argument")
        assert places_of([dark], platform) == []
        assert {each["bento"] for each in await revisions(platform, "colours")} == {before}
    await platform.delete("colours")
    await laptop.types("secret delete shades")


async def test_without_requests_files_and_watchers_it_sleeps_and_each_wakes_it(
    platform: Platform, laptop: Laptop, kitchen: str, tmp_path: Path
) -> None:
    own = Platform(tmp_path / "data", environments_of=platform, settings="dev_idle_s = 3\n")
    try:
        await own.start()
        other = await Laptop.at(tmp_path / "laptop", own)
        folder = project(other, "nap")
        async with coding(other, folder) as client:
            await client.begin("nap")
            url = await own.url_of("nap")
            await says(url, "first")
            asked_at = asyncio.get_running_loop().time()
        await own.asleep("nap")
        assert asyncio.get_running_loop().time() - asked_at >= 3
        await says(url, "first")
        await own.asleep("nap")
        async with RoughClient(own) as api:
            changed = {
                "path": "words.py",
                "b64_encoded_content": b64encode(b"WORD='woken'").decode(),
            }
            await api.call("POST", "/api/v2/deployments/nap/files", {"files": [changed]})
        await until(lambda: is_awake(own))
        await own.asleep("nap")
        async with ClientSession() as session, session.get(f"{url}/readyz") as response:
            assert response.status == 200, "as a watcher asks"
        assert await is_awake(own)
        assert await own.stop() == 0
    finally:
        own.destroy()


async def is_awake(platform: Platform) -> bool:
    return bool(await platform.replicas("nap"))
