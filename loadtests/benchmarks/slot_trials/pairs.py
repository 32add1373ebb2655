"""A service on the platform and by `bentoml serve`, called in turns; and small services to call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from loadtests.harness.child_process import BenchmarkFailed
from loadtests.harness.installation import Installation, deploy, serving, until

Sample = TypeVar("Sample")

LIMIT_S = 60.0
HEAD = """import asyncio
import time
from collections.abc import AsyncIterator

import bentoml


@bentoml.service(image=bentoml.images.Image(python_version="3.11"))
"""


def project(folder: Path, service: str) -> Path:
    """A folder with a service that sets nothing."""
    folder.mkdir()
    (folder / "service.py").write_text(HEAD + service)
    return folder


async def pairs(
    here: Installation,
    source: Path,
    services: dict[str, Any],
    sample: Callable[[str], Awaitable[Sample]],
    count: int,
) -> list[tuple[Sample, Sample]]:
    """Takes so many pairs of samples, of our URL and of the peer's; each is first in turns."""
    ours, tag = await deploy(here, source, "slots", services)
    found = []
    async with serving(here, tag, here.home / "serve.log") as (peer, server):

        async def ready() -> bool:
            if not server.alive:
                raise BenchmarkFailed(f"bentoml serve has ended: {server.log_tail}")
            return await _is_ready(peer)

        await until(ready, LIMIT_S, "bentoml serve is not ready")
        for number in range(count):
            samples = {url: await sample(url) for url in ((ours, peer), (peer, ours))[number % 2]}
            found.append((samples[ours], samples[peer]))
    return found


async def ask(session: aiohttp.ClientSession, url: str, body: Any) -> None:
    """Post JSON, and read the whole answer. Raises BenchmarkFailed unless it is a 200."""
    async with session.post(url, json=body) as answer:
        text = await answer.text()
        if answer.status != 200:
            raise BenchmarkFailed(f"{url}: {answer.status} {text}")


async def _is_ready(url: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{url}/readyz") as answer:
            return answer.status == 200
    except aiohttp.ClientConnectionError:
        return False
