"""Replicas are drained and removed under load, by scale-downs and roll-outs: no request is cut."""

from __future__ import annotations

import argparse
import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from loadtests.harness.verdict import Verdict
from loadtests.systems.kitchens import AWAKE, Kitchens, kitchens, service_settings
from tests.support.patience import until

COOKING_S = 5.0
ANSWERED_S = 120.0
NAME = "draining"


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--drains", type=int, default=50, help="replicas to drain and remove")
    parser.add_argument("--in-flight", type=int, default=1000, help="requests at any time")


@dataclass
class Requests:
    """What became of those of the load."""

    answered: int = 0
    failures: list[str] = field(default_factory=list)


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    verdict = Verdict()
    async with kitchens(folder) as place:
        url = await place.deploy(NAME, slots=flags.in_flight, **AWAKE)
        async with _load(f"{url}/cook", flags.in_flight) as requests:
            there = await _scaled(place, 1, flags.in_flight)
            seen = set(there)
            for count in itertools.cycle((2, 1)):
                if len(seen - there) >= flags.drains:
                    break
                there = await _scaled(place, count, flags.in_flight)
                seen |= there
            verdict.figures["replicas drained"] = len(seen - there)
        verdict.figures["requests"] = requests.answered + len(requests.failures)
        verdict.figures["errors"] = len(requests.failures)
        verdict.broken += requests.failures[:10]
    return verdict


async def _scaled(place: Kitchens, count: int, slots: int) -> set[str]:
    """The replicas when there are as many, all ready, after a change of the deployment."""
    wanted = service_settings(slots, min_replicas=count, max_replicas=count)
    await place.rough.update(NAME, place.bento.tag, Kitchen=wanted)
    found: list[str] = []

    async def there() -> bool:
        replicas = await place.platform.replicas(NAME)
        found[:] = [replica["id"] for replica in replicas]
        return len(replicas) == count and all(each["state"] == "ready" for each in replicas)

    await until(there, ANSWERED_S)
    return set(found)


@asynccontextmanager
async def _load(url: str, in_flight: int) -> AsyncIterator[Requests]:
    """As many callers, each of whom asks again when it is answered; ends when all have been."""
    requests, stopping = Requests(), asyncio.Event()
    limits = aiohttp.ClientTimeout(ANSWERED_S)

    async def ask_on(number: int) -> None:
        # Spread over the first handler's time, as callers are.
        await asyncio.sleep(COOKING_S * number / in_flight)
        while not stopping.is_set():
            try:
                async with http.post(url, json={"seconds": COOKING_S}) as answer:
                    text = await answer.text()
                    if answer.status == 200:
                        requests.answered += 1
                        continue
                requests.failures.append(f"{answer.status} {text[:200]}")
            except (aiohttp.ClientError, TimeoutError) as error:
                requests.failures.append(repr(error))
            await asyncio.sleep(0.5)

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=limits, connector=connector) as http:
        callers = [asyncio.create_task(ask_on(number)) for number in range(in_flight)]
        try:
            yield requests
            stopping.set()
            await asyncio.gather(*callers)
        finally:
            for caller in callers:
                caller.cancel()
