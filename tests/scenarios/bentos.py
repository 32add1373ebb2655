"""The services that the scenarios deploy; they pin the same packages, so one environment does."""

from __future__ import annotations

import sys
from importlib.metadata import version

_PINS = [f"{name}=={version(name)}" for name in ("bentoml", "numpy", "safetensors")]
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

IMAGE = f"""
from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator

import bentoml

image = bentoml.images.Image(python_version={_PYTHON!r}, lock_python_packages=False)
image.python_packages({", ".join(map(repr, _PINS))})
"""

KITCHEN = (
    IMAGE
    + '''

@bentoml.service(image=image, traffic={"concurrency": 1})
class Kitchen:
    """Counts how many of its handlers run at once."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0

    @bentoml.api
    async def cook(self, seconds: float = 0.0) -> dict:
        began = time.time()
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.running -= 1
        return {"pid": os.getpid(), "began": began, "ended": time.time(), "most": self.most}

    @bentoml.api
    async def stream(self, pieces: int = 3, pause_s: float = 0.5) -> AsyncIterator[str]:
        for number in range(pieces):
            if number:
                await asyncio.sleep(pause_s)
            yield f"piece {number}\\n"

    @bentoml.api
    def block(self, seconds: float) -> dict:
        """Goes on whoever leaves: a thread cannot be cancelled."""
        began = time.time()
        time.sleep(seconds)
        return {"pid": os.getpid(), "began": began, "ended": time.time()}

    @bentoml.api
    def echo(self, text: str) -> str:
        return text

    @bentoml.api
    def crash(self) -> str:
        os._exit(7)
'''
)

PAIR = (
    IMAGE
    + """

@bentoml.service(image=image)
class Back:
    @bentoml.api
    def shout(self, text: str) -> dict:
        return {"pid": os.getpid(), "text": text.upper()}


@bentoml.service(image=image)
class Front:
    back = bentoml.depends(Back)

    @bentoml.api
    async def ask(self, text: str) -> dict:
        return {"front": os.getpid(), "back": await self.back.to_async.shout(text=text)}
"""
)
