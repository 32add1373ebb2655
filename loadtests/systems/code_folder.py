"""A folder on a laptop that `bentoml code` serves: its one answer is what was saved last."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import aiohttp

from tests.support.services.bentos import IMAGE

NAME = "space"
ASKED_S = 60.0
SERVICE = (
    IMAGE
    + """
import words


@bentoml.service(image=image)
class Space:
    @bentoml.api
    def say(self) -> str:
        return words.WORD
"""
)


def save(project: Path, word: str) -> None:
    """In a module that the service imports."""
    (project / "words.py").write_text(f"WORD = {word!r}\n")


async def answer_of(url: str) -> str:
    """What the code space answers; "" where it does not."""
    timeout = aiohttp.ClientTimeout(ASKED_S)
    with suppress(aiohttp.ClientError, TimeoutError):
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(f"{url}/say", json={}) as response,
        ):
            return await response.text() if response.status == 200 else ""
    return ""
