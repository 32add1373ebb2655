"""`bentoml code`: a folder that runs on the platform, and again after each save."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import ClientError, ClientSession, ClientTimeout

from tests.support.end_to_end.code_client import CodeClient, coding
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform
from tests.support.patience import PATIENCE_S
from tests.support.services.bentos import IMAGE

pytestmark = pytest.mark.client

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


async def begin(client: CodeClient, name: str) -> None:
    """Answer the menu's questions."""
    await client.printed("Create a new codespace")
    await client.press("\r")
    await client.printed("Enter a name")
    client.type(f"{name}\r")
    await client.printed("Endpoint:")


@pytest.mark.usefixtures("unharmed", "kitchen")
async def test_a_save_is_answered_with_and_an_error_in_a_module_does_not_lose_the_client(
    platform: Platform, laptop: Laptop
) -> None:
    folder = project(laptop, "space")
    async with coding(laptop, folder) as client:
        await begin(client, "space")
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
    async with coding(laptop, folder, "--attach", "space") as again:
        await again.printed("Endpoint:")
        await says(url, "repaired")
    await platform.delete("space")
