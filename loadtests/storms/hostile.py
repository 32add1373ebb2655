"""Services that use up, block or outlive what they can, beside a good neighbour under steady load.

Each must end with a sentence in `hotplate status`, `events` or `logs` and leave no process behind,
and the neighbour must answer all requests.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from loadtests.harness.verdict import Verdict
from loadtests.systems.steady_load import steady_load
from loadtests.systems.templates import SOON, ForkCount
from tests.support.deploy.running import runs
from tests.support.end_to_end.census import ROLES
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform, running
from tests.support.end_to_end.rough_client import RoughClient
from tests.support.memory import memory_bytes
from tests.support.patience import until
from tests.support.services.bentos import KITCHEN
from tests.support.services.calling import Refused, call, process_of
from tests.support.services.vandals import STUBBORN, VANDAL

CALLERS = 3
WATCH_S = 0.1
PATIENCE_S = 90.0
"""How long the platform may take to deal with each; a replica that hangs takes it a minute."""
LOG_DISK_BYTES = 128 << 20
"""Of the replicas' folders under 1 GB of logs: a log's limit, and what exceeds it for a moment."""
SMALL = {"config_overrides": {"resources": {"memory": "256Mi"}}}
AWAKE = {"scaling": {"min_replicas": 1, "max_replicas": 1}}
NAMES = ("shouts", "eats", "hangs", "forks", "ignores_sigterm", "blocks", "command")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--daemons", type=int, default=200, help="forked by one service")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="what is tried")


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    async with (
        running(folder / "data", standby=SOON) as platform,
        RoughClient(platform) as rough,
    ):
        laptop = await Laptop.at(folder / "laptop", platform)
        await laptop.deploy("good", await laptop.build("kitchen", KITCHEN), Kitchen=AWAKE)
        await rough.settled("good", "running")
        for name, source in (("vandal", VANDAL), ("stubborn", STUBBORN)):
            await laptop.bentoml("push", await laptop.build(name, source))
        trial = Trial(platform, rough, flags.daemons)
        url = f"{await platform.url_of('good')}/echo"
        async with steady_load(CALLERS, url, text="good") as load, trial.memory_watched():
            for name in flags.only:
                try:
                    await getattr(trial, name)()
                except (TimeoutError, AssertionError, Refused, OSError) as error:
                    trial.verdict.broken.append(f"{name}: {error!r}")
        figures = trial.verdict.figures
        figures["the neighbour's requests: sent"] = load.sent
        figures["the neighbour's requests: failed"] = len(load.failures)
        trial.verdict.broken += [f"the neighbour: {each.what}" for each in load.failures[:5]]
        if not await platform.healthy():
            trial.verdict.broken.append("the platform is not healthy afterwards")
        await ForkCount(platform).show(trial.verdict)
        return trial.verdict


@dataclass
class Trial:
    """One platform with its neighbour, and what was found."""

    platform: Platform
    rough: RoughClient
    daemons: int
    verdict: Verdict = field(default_factory=Verdict)

    @asynccontextmanager
    async def of(self, name: str, does: str, **settings: Any) -> AsyncIterator[None]:
        """A deployment that does this at its start; it is deleted at the end."""
        envs = [{"name": "DOES", "value": does}]
        await self.rough.deploy(name, "vandal:v1", Vandal={"envs": envs, **AWAKE, **settings})
        try:
            yield
        finally:
            await self.platform.delete(name)

    async def timed(self, what: str, work: Awaitable[Any]) -> Any:
        began = asyncio.get_running_loop().time()
        try:
            return await asyncio.wait_for(work, PATIENCE_S)
        finally:
            seconds = asyncio.get_running_loop().time() - began
            self.verdict.figures[f"{what}, s"] = round(seconds, 1)

    async def url(self, name: str, path: str) -> str:
        await self.rough.settled(name, "running")
        return f"{await self.platform.url_of(name)}/{path}"

    async def shows(self, name: str, sentence: str, *commands: str) -> None:
        """Waits until each of these commands shows the sentence."""
        for command in commands:

            async def shown(command: str = command) -> bool:
                return sentence in await self.platform.hotplate(command, name)

            try:
                await until(shown, PATIENCE_S)
            except TimeoutError:
                self.verdict.broken.append(f"`hotplate {command} {name}` lacks: {sentence}")

    async def gone(self, pids: list[int]) -> None:
        async def none_runs() -> bool:
            return not any(map(runs, pids))

        await until(none_runs, PATIENCE_S)

    # What the services do ------------------------------------------------------------------------

    async def shouts(self) -> None:
        async with self.of("shouts", "shout"):
            with_most = _Peak(lambda: _size_bytes(self.platform.data / "engine"))
            async with with_most:
                await self.timed("1 GB of logs: written", self.rough.settled("shouts", "running"))
            mib = with_most.most >> 20
            self.verdict.figures["1 GB of logs: most on the disk, MiB"] = mib
            if with_most.most > LOG_DISK_BYTES:
                self.verdict.broken.append(f"a log of 1 GB took {mib} MiB of the disk")
            (noisy,) = await self.platform.replicas("shouts")
            with (self.platform.data / "engine" / "replicas" / noisy["id"] / "log").open() as log:
                first = log.readline()
            if not first.startswith("hotplate: this log had grown to "):
                self.verdict.broken.append("the log does not say that it was cut")

    async def eats(self) -> None:
        sentence = "killed: it used more than its 256 MiB of memory (resources.memory)"
        async with self.of("eats-early", "gobble", **SMALL):
            shown = self.shows("eats-early", sentence, "events", "status", "logs")
            await self.timed("eats in __init__: killed and shown", shown)
        async with self.of("eats-late", "nothing", **SMALL):
            url = await self.url("eats-late", "eat")
            with suppress(Refused):
                await self.timed("eats in a handler: its caller was answered", call(url))
            await self.shows("eats-late", sentence, "events", "logs")

    async def forks(self) -> None:
        async with self.of("forks", "nothing"):
            url = await self.url("forks", "fork")
            made = await self.timed("forks: made", call(url, count=self.daemons))
            family = [process_of(each) for each in made]
            alive = sum(map(runs, family))
            self.verdict.figures["forks: daemons before the delete"] = alive
            if alive < self.daemons:
                self.verdict.broken.append(f"only {alive} of {self.daemons} daemons were there")
            await self.timed("forks: deployment deleted", self.platform.delete("forks"))
            left = sum(map(runs, family))
            self.verdict.figures["forks: daemons left when it is forgotten"] = left
            if left:
                self.verdict.broken.append(f"forgotten with {left} daemons alive")
            await self.gone(family)

    async def ignores_sigterm(self) -> None:
        async with self.of("deaf", "nothing"):
            pid = process_of(await call(await self.url("deaf", "deafen")))
            await self.timed("ignores SIGTERM: deleted", self.platform.delete("deaf"))
            await self.gone([pid])

    async def hangs(self) -> None:
        sentence = "not ready within its cold_start_timeout of 6 s"
        async with self.of("hangs", "hang", cold_start_timeout=6):
            shown = self.shows("hangs", sentence, "status", "events", "logs")
            await self.timed("hangs in __init__: shown", shown)

    async def blocks(self) -> None:
        short = {"config_overrides": {"traffic": {"timeout": 3}}}
        async with self.of("blocks", "nothing", **short):
            url = await self.url("blocks", "block")
            me = await call(await self.url("blocks", "pid"))
            pid = process_of(me)
            with suppress(Refused):
                await self.timed("blocks its loop: its caller was answered", call(url))
            await self.timed("blocks its loop: replica gone", self.gone([pid]))
            await self.shows("blocks", "blocks its event loop", "events", "logs")

            async def serves() -> bool:
                with suppress(Refused):
                    return bool(await call(await self.url("blocks", "pid")) != me)
                return False

            await self.timed("blocks its loop: another serves", until(serves, PATIENCE_S))

    async def command(self) -> None:
        await self.rough.deploy("stubborn", "stubborn:v1", Command=AWAKE)
        url = await self.url("stubborn", "pid")
        async with aiohttp.ClientSession() as http, http.get(url) as answer:
            pid = process_of(int((await answer.text()).split()[0]))
        await self.timed("a command ignores SIGTERM: deleted", self.platform.delete("stubborn"))
        await self.gone([pid])

    @asynccontextmanager
    async def memory_watched(self) -> AsyncIterator[None]:
        peaks = {role: _Peak(partial(memory_bytes, self.platform.pid(role))) for role in ROLES}
        async with AsyncExitStack() as stack:
            for peak in peaks.values():
                await stack.enter_async_context(peak)
            yield
        for role, peak in peaks.items():
            self.verdict.figures[f"{role}: most memory, MiB"] = peak.most >> 20


class _Peak:
    """The most of an amount while the block runs."""

    def __init__(self, amount: Callable[[], int]) -> None:
        self.most = 0
        self._amount = amount

    async def __aenter__(self) -> _Peak:
        self._watch = asyncio.create_task(self._look())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watch.cancel()
        await asyncio.wait([self._watch])

    async def _look(self) -> None:
        while True:
            with suppress(OSError):
                self.most = max(self.most, self._amount())
            await asyncio.sleep(WATCH_S)


def _size_bytes(folder: Path) -> int:
    """The bytes that the files below it take on the disk."""
    sizes = []
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                sizes.append((Path(parent) / name).lstat().st_blocks * 512)
    return sum(sizes)
