"""An hour of deploys, scale-ups, kills, uploads and failing clients: at its end everything is flat.

A steady deployment is called all the time, and none of its requests may fail. Beside it others come
and go. What the platform has (memory, descriptors, threads, files, ports, mounts) is counted
before, meanwhile and when it is at rest again.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression
from urllib.parse import urlsplit

import aiohttp

from loadtests.harness.verdict import Verdict
from loadtests.systems.kitchens import Kitchens, kitchens
from loadtests.systems.steady_load import SteadyLoad, steady_load
from tests.support.end_to_end import census
from tests.support.end_to_end.census import ROLES, Census
from tests.support.patience import until
from tests.support.services.calling import Refused, call, process_of

SLOPE_BYTES_PER_S = (1 << 20) / 600
"""How fast a role's memory may grow over the second half: 1 MiB in ten minutes."""
NOISE_BYTES = 4 << 20
"""What may come on top in any time: SQLite keeps up to 2 MiB of a database, which grows with what
is pushed (5 KB a deploy here), and allocators take and give back arenas of 1 MiB."""
SWEPT_S = 150.0
"""How long what nobody uses may stay after the end; the platform's grace is in it."""
COUNTED_EVERY_S = 10.0
POOLED = 4
"""Threads, and connections to another role, that a role may have more than before: a pool makes
each when it is first needed, and the calls of an idle platform take them in turn, so that none is
unused for long enough to be closed."""
AT_ONCE = 8
"""Deploys before anything is counted: they fill the pools of threads, each of which has fewer, so
that one that grows without end is told from one that was not full."""
NAMED = 50
"""How many of the files that are left are named."""
STEADY_CALLERS = 3
PACE_S = 0.05
RUN = Path("/run/hotplate")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=60.0, help="how long it lasts (60)")
    parser.add_argument("--seed", type=int, default=1, help="of what is killed, and when (1)")


@dataclass(frozen=True)
class Count:
    """What the platform has at one moment."""

    at: float
    """Seconds of a monotonic clock."""
    census: Census
    threads: dict[str, int]
    """Of each role."""
    mounts: int
    """In this machine's table, of its data directory."""
    dead_folders: int
    """In `/run/hotplate`, with nothing mounted, or what was mounted gone; of every platform of this
    machine."""

    def leftovers(self, before: Count) -> list[str]:
        """What is there beyond what there was before, a sentence each."""
        found = self.census.leftovers(before.census, POOLED)
        counts = {
            f"threads of {role}": (before.threads[role] + POOLED, self.threads[role])
            for role in ROLES
        }
        counts["mounts"] = (before.mounts, self.mounts)
        counts["dead folders in /run/hotplate"] = (before.dead_folders, self.dead_folders)
        return found + [
            f"{what}: {then} before, {now} after"
            for what, (then, now) in counts.items()
            if now > then
        ]


@dataclass
class Soak:
    """One run."""

    place: Kitchens
    temporary: Path
    rng: random.Random
    done: Counter[str] = field(default_factory=Counter)
    """How often each kind of churn was done."""
    troubles: list[str] = field(default_factory=list)
    counts: list[Count] = field(default_factory=list)

    def count(self) -> Count:
        platform = self.place.platform
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        return Count(
            time.monotonic(),
            census.take(platform, self.temporary),
            {role: len(os.listdir(f"/proc/{platform.pid(role)}/task")) for role in ROLES},
            sum(str(platform.data) in line for line in mounts),
            sum(map(_is_dead, RUN.iterdir())) if RUN.exists() else 0,
        )


def _is_dead(folder: Path) -> bool:
    try:
        return not os.path.ismount(folder) or not os.listdir(folder)
    except OSError:  # the process that had mounted it is gone
        return True


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    temporary = folder / "tmp"
    temporary.mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    verdict = Verdict()
    async with kitchens(folder, standby="") as place:
        soak = Soak(place, temporary, random.Random(flags.seed))
        url = await place.deploy("steady", slots=8, min_replicas=1)
        await place.deploy("victim", max_replicas=3)
        for churn in (_come_and_go, _scale_up, _kill, _fail_uploads, _leave):
            await churn(soak)
        await asyncio.gather(*(_come_and_go(soak) for _ in range(AT_ONCE)))
        await place.warm()  # what is warm stays from then on
        before = await _at_rest(soak)
        files = census.paths(place.platform.data)
        async with steady_load(STEADY_CALLERS, f"{url}/cook", seconds=PACE_S) as load:
            await _churn(soak, flags.minutes * 60)
        left = await _left_at_rest(soak, before)
        if any(sentence.startswith("files in") for sentence in left):
            new = sorted(census.paths(place.platform.data) - files)
            left.append(f"{len(new)} new files: {', '.join(new[:NAMED])}")
    _judge(verdict, soak, load, left)
    return verdict


async def _churn(soak: Soak, lasts_s: float) -> None:
    """All kinds of churn side by side until the time is over."""
    ends_at = time.monotonic() + lasts_s

    async def again_and_again(churn: Callable[[Soak], Awaitable[None]], pause_s: float) -> None:
        while time.monotonic() < ends_at:
            try:
                await churn(soak)
                soak.done[churn.__name__.strip("_")] += 1
            except (Refused, AssertionError, TimeoutError, aiohttp.ClientError) as error:
                soak.troubles.append(f"{churn.__name__.strip('_')}: {error!r}")
            await asyncio.sleep(soak.rng.uniform(0.5, 1.5) * pause_s)

    async def count() -> None:
        while time.monotonic() < ends_at:
            soak.counts.append(soak.count())
            await asyncio.sleep(COUNTED_EVERY_S)

    async with asyncio.TaskGroup() as group:
        group.create_task(again_and_again(_come_and_go, 10.0))
        group.create_task(again_and_again(_scale_up, 15.0))
        group.create_task(again_and_again(_kill, 20.0))
        group.create_task(again_and_again(_fail_uploads, 8.0))
        group.create_task(again_and_again(_leave, 2.0))
        group.create_task(count())


_numbers = itertools.count()


async def _come_and_go(soak: Soak) -> None:
    """A bento that nobody has seen is uploaded, deployed, called and deleted."""
    name = f"passing-{next(_numbers)}"
    answer = await soak.place.come_and_go(name)
    assert answer["version"] == name, f"{name} answered as {answer['version']}"


async def _scale_up(soak: Soak) -> None:
    """More requests at once than the victim has slots; some fail, as its replicas are killed."""
    url = await soak.place.platform.url_of("victim")
    asked = (call(f"{url}/cook", seconds=0.5) for _ in range(12))
    for answer in await asyncio.gather(*asked, return_exceptions=True):
        soak.done["answers of the victim" if isinstance(answer, dict) else "its failures"] += 1


async def _kill(soak: Soak) -> None:
    """A replica of the victim, in the middle of a request."""
    url = await soak.place.platform.url_of("victim")
    pid = process_of((await call(f"{url}/cook"))["pid"])
    with suppress(ProcessLookupError, Refused):
        asked = asyncio.create_task(call(f"{url}/cook", seconds=1.0))
        await asyncio.sleep(soak.rng.uniform(0.0, 1.0))
        if pid:
            os.kill(pid, signal.SIGKILL)
            soak.done["kills"] += 1
        await asked


async def _fail_uploads(soak: Soak) -> None:
    """A client that goes away in the middle of an upload, and one whose tar is none."""
    name = f"broken-{next(_numbers)}"
    bento = soak.place.bento.changed(name, {"src/padding": "x" * (2 << 20)})
    one = await soak.place.rough.register("bento", bento.name, bento.version, bento.manifest)
    await soak.place.rough.send_half(f"{one}/upload", bento.tar())
    await soak.place.rough.refusal("PUT", f"{one}/upload", data=b"no tar" * 1000)


async def _leave(soak: Soak) -> None:
    """Callers that go away: before their request is whole, and in the middle of its handler."""
    url = urlsplit(await soak.place.platform.url_of("steady"))
    for request in (b"POST /cook HTTP/1.1\r\nHost", _whole_request(url.netloc)):
        _, writer = await asyncio.open_connection(url.hostname, url.port)
        writer.write(request)
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.transport.abort()


def _whole_request(host: str) -> bytes:
    body = b'{"seconds": 0.5}'
    head = f"POST /cook HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


async def _at_rest(soak: Soak) -> Count:
    """What there is when nothing comes or goes: the steady deployment's replica alone runs."""
    await soak.place.platform.asleep("victim")
    last = soak.count()

    async def unchanged() -> bool:
        nonlocal last
        await asyncio.sleep(5.0)
        before, last = last, soak.count()
        return not last.leftovers(before) and not before.leftovers(last)

    with suppress(TimeoutError):
        await until(unchanged, SWEPT_S)
    return last


async def _left_at_rest(soak: Soak, before: Count) -> list[str]:
    """What is left of the soak when the platform has had time to sweep."""
    await soak.place.platform.asleep("victim")
    left: list[str] = []

    async def clean() -> bool:
        left[:] = soak.count().leftovers(before)
        return not left

    with suppress(TimeoutError):
        await until(clean, SWEPT_S)
    return left


def _judge(verdict: Verdict, soak: Soak, load: SteadyLoad, left: list[str]) -> None:
    figures = verdict.figures
    figures["steady requests"] = load.sent
    figures["of them failed"] = len(load.failures)
    figures |= {f"churn: {what}": count for what, count in sorted(soak.done.items())}
    figures["churn: unexplained failures"] = len(soak.troubles)
    for role in ROLES:
        half = soak.counts[len(soak.counts) // 2 :]
        if len(half) < 3:
            verdict.broken.append("memory was counted too rarely: the soak is too short")
            break
        times_s = [one.at for one in half]
        sizes = [one.census.memory_bytes[role] for one in half]
        slope = linear_regression(times_s, sizes).slope
        ends = soak.counts[0].census.memory_bytes[role], sizes[-1]
        shown = ", ".join(f"{size / (1 << 20):.1f}" for size in ends)
        figures[f"memory of {role}: MiB, at first and at last"] = shown
        figures[f"memory of {role}: KiB in a minute, second half"] = round(slope * 60 / 1024, 1)
        grown = slope * (times_s[-1] - times_s[0])
        if slope > SLOPE_BYTES_PER_S and grown > NOISE_BYTES:
            verdict.broken.append(
                f"the memory of {role} grew by {grown / (1 << 20):.1f} MiB in the second half"
            )
    if not soak.done["kills"]:
        verdict.broken.append("no replica was killed, so nothing was tried")
    verdict.broken += [f"steady: {failure.what}" for failure in load.failures[:10]]
    verdict.broken += soak.troubles[:10]
    verdict.broken += [f"left at the end: {sentence}" for sentence in left]
