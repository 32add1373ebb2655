"""The services that the scenarios deploy; they pin the same packages, so one environment does."""

from __future__ import annotations

import sys
from importlib.metadata import version

SLEEPY = {"min_replicas": 0, "max_replicas": 1, "policy": {"scale_down_stabilization_window": 1}}
"""Scaling settings of what is asleep a second after its last request."""

REQUIREMENTS = {
    **{name: f"{name}=={version(name)}" for name in ("bentoml", "numpy", "safetensors")},
    "fastapi": "fastapi",
}
"""What each package's line of the requirements is, in the order that makes one environment."""
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

NUMBERS, NAMESPACES = 22, 32
"""Bits of a process id, and of the number of a namespace."""

ME = f"""

def me() -> int:
    \"\"\"A number that no other process of this machine has or has had, wherever it lives.\"\"\"
    with open("/proc/self/stat") as file:
        started = int(file.read().rpartition(")")[2].split()[19])
    namespace = os.stat("/proc/self/ns/pid").st_ino
    return (started << {NAMESPACES} | namespace) << {NUMBERS} | os.getpid()
"""

IMAGE = (
    f"""
from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import bentoml

image = bentoml.images.Image(python_version={_PYTHON!r}, lock_python_packages=False)
image.python_packages({", ".join(map(repr, REQUIREMENTS.values()))})
"""
    + ME
)

ECHO = """

@bentoml.service(image=image)
class Kitchen:
    @bentoml.api
    def echo(self, text: str) -> str:
        return text
"""
"""A service to come after `IMAGE`; its methods may go on."""

KITCHEN = (
    IMAGE
    + '''

VERSION = "v1"


@bentoml.service(image=image, traffic={"concurrency": 1})
class Kitchen:
    """Counts how many of its handlers run at once."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0

    @contextmanager
    def counted(self) -> Iterator[dict]:
        about = {"pid": me(), "version": VERSION, "began": time.time()}
        self.running += 1
        self.most = max(self.most, self.running)
        yield about
        self.running -= 1
        about |= {"ended": time.time(), "most": self.most}

    @bentoml.api
    async def cook(self, seconds: float = 0.0) -> dict:
        with self.counted() as about:
            await asyncio.sleep(seconds)
        return about

    @bentoml.api
    def block(self, seconds: float) -> dict:
        """The same in a thread, which nobody can cancel."""
        with self.counted() as about:
            time.sleep(seconds)  # a thread that nobody can cancel is what is tested
        return about

    @bentoml.api
    async def stream(self, pieces: int, pause_s: float) -> AsyncIterator[str]:
        for number in range(pieces):
            await asyncio.sleep(pause_s)
            yield f"piece {number}\\n"

    @bentoml.api
    def echo(self, text: str) -> str:
        return text

    @bentoml.api
    def crash(self) -> str:
        os._exit(7)
'''
)

SIMMERING = (
    KITCHEN
    + """
    @bentoml.task
    async def simmer(self, seconds: float = 0.0) -> str:
        await asyncio.sleep(seconds)
        return VERSION
"""
)

PAIR = (
    IMAGE
    + """

@bentoml.service(image=image)
class Back:
    @bentoml.api
    def shout(self, text: str) -> dict:
        return {"pid": me(), "text": text.upper()}


@bentoml.service(image=image)
class Front:
    back = bentoml.depends(Back)

    @bentoml.api
    async def ask(self, text: str) -> dict:
        return {"front": me(), "back": await self.back.to_async.shout(text=text)}
"""
)

READER = (
    IMAGE
    + """

@bentoml.service(image=image)
class Reader:
    model = bentoml.models.BentoModel("numbers:1")

    def __init__(self) -> None:
        from safetensors.numpy import load_file

        self.tensors = load_file(self.model.path_of("model.safetensors"))

    @bentoml.api
    def sums(self) -> dict:
        return {name: float(tensor.sum()) for name, tensor in self.tensors.items()}
"""
)
