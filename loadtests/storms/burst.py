"""Requests that come at once to services at zero: all are held until replicas have started."""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

import aiohttp

from loadtests.harness.verdict import Verdict
from loadtests.systems.kitchens import Kitchens, kitchens

COOKING_S = 0.1
ANSWERED_S = 290.0


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", type=int, default=1000, help="in all, at once")
    parser.add_argument("--services", type=int, default=1, help="that share them, each at zero")
    parser.add_argument("--within", type=float, help="seconds: the most that p95 may be")
    parser.add_argument("--replicas", type=int, default=3, help="the most that each may have")


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    verdict = Verdict()
    async with kitchens(folder, ports=flags.services + 10, standby="") as place:
        urls = [await _asleep(place, f"k{n}", flags.replicas) for n in range(flags.services)]
        for number in range(flags.services):
            await place.platform.asleep(f"k{number}")
        await place.warm()
        await _burst(urls, flags.requests, flags.within, verdict)
        starts = 0
        for number in range(flags.services):
            starts += len(await place.platform.ask(f"k{number}", "/cold_starts?count=100"))
        verdict.figures["cold starts, with that of each deploy"] = starts
        if starts < 2 * flags.services:
            verdict.broken.append("not every service started for the requests: none was at zero")
    return verdict


async def _asleep(place: Kitchens, name: str, replicas: int) -> str:
    at_once = {"scale_down_stabilization_window": 1, "scale_up_behavior": "fast"}
    return await place.deploy(name, slots=100, max_replicas=replicas, policy=at_once)


async def _burst(urls: list[str], requests: int, within_s: float | None, verdict: Verdict) -> None:
    """Sends all at once, the same number to each, and notes how they ended."""
    began = time.monotonic()
    first_s: dict[str, float] = {}
    lasted_s: list[float] = []
    errors: list[str] = []
    limits = aiohttp.ClientTimeout(ANSWERED_S)
    connector = aiohttp.TCPConnector(limit=0)

    async def ask(url: str) -> None:
        try:
            async with http.post(f"{url}/cook", json={"seconds": COOKING_S}) as answer:
                text = await answer.text()
                if answer.status != 200:
                    errors.append(f"{answer.status} {text[:200]}")
        except (aiohttp.ClientError, TimeoutError) as error:
            errors.append(repr(error))
        lasted_s.append(time.monotonic() - began)
        first_s.setdefault(url, lasted_s[-1])

    async with aiohttp.ClientSession(timeout=limits, connector=connector) as http:
        await asyncio.gather(*(ask(urls[n % len(urls)]) for n in range(requests)))
    firsts = sorted(first_s.values())
    verdict.figures["requests"] = len(lasted_s)
    verdict.figures["errors"] = len(errors)
    verdict.figures["longest until a service's first answer, s"] = firsts[-1]
    p95_s = firsts[int(0.95 * (len(firsts) - 1))]
    verdict.figures["p95 of services' first answers, s"] = p95_s
    verdict.figures["longest until all are answered, s"] = max(lasted_s)
    verdict.broken += errors[:10]
    if within_s is not None and p95_s > within_s:
        verdict.broken.append(f"p95 of services' first answers is {p95_s:.1f} s, not {within_s:g}")
