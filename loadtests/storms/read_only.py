"""The store takes no writes, as SQLite on a disk that became read-only, and as PostgreSQL.

For SQLite, `LD_PRELOAD` of `programs/faulty_libc.c` has every write and fsync below the data
directory's database fail with EROFS, as after an error the kernel makes a file system read-only
under open files. For PostgreSQL its own switch (`default_transaction_read_only`) is set. Requests
go on, what would change something is refused with 503 and a sentence, and when the store takes
writes again the same processes do everything.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path

from loadtests.harness.verdict import Verdict
from loadtests.systems.faulted_platform import FaultedPlatform, faulted_platform
from loadtests.systems.faulty_libc import FaultyLibc
from tests.support.control_plane import postgresql

Fault = Callable[[], AbstractContextManager[None]]


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=20.0, help="without writes (20)")
    parser.add_argument("--stores", nargs="+", default=["sqlite", "postgresql"])


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    verdict = Verdict()
    for kind in flags.stores:
        place = folder / kind
        place.mkdir()
        opened = _sqlite(place, verdict) if kind == "sqlite" else _postgresql(place, verdict)
        async with opened as (trial, fault):
            await _refuse_writes(trial, kind, fault, flags.seconds)
    return verdict


async def _refuse_writes(trial: FaultedPlatform, kind: str, fault: Fault, seconds: float) -> None:
    what = f"read-only {kind}"
    with fault():
        async with trial.asked(what) as told:
            await asyncio.sleep(seconds)
            said = await trial.platform.hotplate("status")
    trial.verdict.figures[f"{what}: status"] = next(
        (line for line in said.splitlines() if "database" in line), "says nothing of it"
    )
    trial.verdict.expect(
        "the database cannot be used" in said, f"{what}: `hotplate status` does not say so"
    )
    refused = sum(n for code, n in told["update"].codes.items() if code.startswith("503"))
    trial.verdict.expect(refused > 0, f"{what}: no update was refused, so nothing was tried")
    trial.verdict.expect(not told["update"].answered, f"{what}: updates were accepted")
    trial.verdict.expect(
        told["deployment"].answered > 0 and not told["deployment"].codes,
        f"{what}: requests were refused: {dict(told['deployment'].codes)}",
    )
    await trial.recovered(what)


@asynccontextmanager
async def _sqlite(folder: Path, verdict: Verdict) -> AsyncIterator[tuple[FaultedPlatform, Fault]]:
    with FaultyLibc(folder, folder / "data" / "hotplate.db") as libc:
        async with faulted_platform(folder, verdict, libc.environ) as trial:
            yield trial, lambda: libc.fault(read_only=True)


@asynccontextmanager
async def _postgresql(
    folder: Path, verdict: Verdict
) -> AsyncIterator[tuple[FaultedPlatform, Fault]]:
    with postgresql.server() as url:
        database = postgresql.database(url)

        @contextmanager
        def fault() -> Iterator[None]:
            postgresql.set_read_only(url, True)
            try:
                yield
            finally:
                postgresql.set_read_only(url, False)

        async with faulted_platform(folder, verdict, database=database) as trial:
            yield trial, fault
