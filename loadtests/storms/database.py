"""PostgreSQL is restarted, crashes, has no connection left and is slow, under a whole platform.

Requests to a deployment that runs are all answered: they need no database. What is asked of the API
is answered, or refused with 503 and a sentence, and afterwards the same processes do everything.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from sqlalchemy import text

from loadtests.harness.verdict import Verdict
from loadtests.systems.faulted_platform import faulted_platform
from tests.support.control_plane import postgresql

SLOW_S = 5.0
Fault = Callable[[str, str, float], Awaitable[None]]


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=15.0, help="of each fault (15)")
    parser.add_argument("--only", nargs="+", choices=FAULTS, default=list(FAULTS))


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    verdict = Verdict()
    async with _server() as server:
        url = postgresql.database(server)
        async with faulted_platform(folder, verdict, database=url) as trial:
            for what in flags.only:
                async with trial.asked(what) as told:
                    await FAULTS[what](server, url, flags.seconds)
                trial.verdict.expect(
                    told["deployment"].answered > 0 and not told["deployment"].codes,
                    f"{what}: requests were refused: {dict(told['deployment'].codes)}",
                )
                strange = [code for one in told.values() for code in one.codes if code[:3] != "503"]
                trial.verdict.expect(not strange, f"{what}: callers were told {strange}")
                await trial.recovered(what)
    return verdict


async def _stopped(mode: str, server: str, _: str, seconds: float) -> None:
    await asyncio.to_thread(postgresql.stop, server, mode)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(postgresql.start, server)


async def _full(server: str, url: str, seconds: float) -> None:
    with postgresql.connections_taken(server, url):
        await asyncio.sleep(seconds)


async def _slow(_: str, url: str, seconds: float) -> None:
    """Whatever has a token waits for 5 s, again and again."""
    for _turn in range(max(1, int(seconds / SLOW_S))):
        with postgresql.connected(url) as other, other.begin():
            await asyncio.to_thread(other.execute, text("LOCK TABLE tokens"))
            await asyncio.sleep(SLOW_S)
        await asyncio.sleep(1.0)


FAULTS: dict[str, Fault] = {
    "restarted": partial(_stopped, "fast"),
    "crashed": partial(_stopped, "immediate"),
    "out of connections": _full,
    "slow": _slow,
}


@asynccontextmanager
async def _server() -> AsyncIterator[str]:
    with postgresql.server(max_connections=20) as url:
        yield url
