"""An hour of light load: what series and costs say that replicas took, beside how long they lived.

Three deployments have a GPU for each replica, of a machine that has none (`programs/sham_gpus`):
one always serves, one goes to zero and comes back each minute, one crashes. Busy, idle and starting
seconds of all three must add up to the lives of the replicas' processes; of one alone a life may
be half a second longer, as a replica has its GPU until its end is seen and cleared away. What of
that was starting is known from outside too, and so is how long handlers ran: a slot is taken
somewhat longer.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from loadtests.harness.report import column
from loadtests.harness.verdict import Verdict
from loadtests.systems.kitchens import Kitchens, kitchens
from loadtests.systems.replica_lives import Life, watched_lives
from tests.support.end_to_end.platform_process import FORKS
from tests.support.patience import until
from tests.support.services.calling import Refused, call

SHAM = Path(__file__).resolve().parents[1] / "programs" / "sham_gpus"
STEADY, SLEEPY, CRASHING = "steady", "sleepy", "crashing"
SHARES = {STEADY: 0.5, SLEEPY: 0.3, CRASHING: 0.2}
"""Of the requests, as long as all are called."""
SCALING: Mapping[str, Mapping[str, object]] = {
    STEADY: {"min_replicas": 1, "max_replicas": 2},
    SLEEPY: {"policy": {"scale_down_stabilization_window": 5}},
    CRASHING: {"min_replicas": 1},
}
PERIOD_S, CALLED_S = 60.0, 25.0
"""The sleepy one is called for so long of each minute."""
CRASH_EVERY_S = 45.0
HANDLER_S = 0.4
BUILD_S = 600.0
"""For the environment, beside whatever else the machine does."""
TOLERATED = 0.01
STEPS_S = (10, 900)
KINDS = ("replica_s", "gpu_s")


@dataclass(frozen=True)
class Taken:
    """Of one deployment, by what one answer of the API says."""

    deployment: str
    answer: str
    lives: int = column("lives")
    lived_s: float = column("lived, s", digits=1)
    parts_s: float = column("parts, s", digits=1)
    off: float = column("off, %", digits=3)
    busy_s: float = column("busy, s", digits=1)
    handlers_s: float = column("handlers ran, s", digits=1)
    starting_s: float = column("starting, s", digits=1)
    started_s: float = column("starts took, s", digits=1)


@dataclass(frozen=True)
class Answer:
    """Seconds by use, of replicas or of their GPUs."""

    source: str
    kind: str
    parts: Mapping[str, float]
    at: float
    """When it was asked, Unix seconds."""

    @property
    def what(self) -> str:
        return f"{self.source}, {self.kind}"


@dataclass
class Calls:
    """What was asked of the deployments, and when handlers ran."""

    rate_per_s: float
    rng: random.Random
    handlers: dict[str, dict[int, list[tuple[float, float]]]] = field(default_factory=dict)
    """By deployment and process: from when to when."""
    failures: Counter[str] = field(default_factory=Counter)
    crashes: int = 0

    async def go_on(self, name: str, url: str, until: float) -> None:
        """Requests at their own times, however long the answers take."""
        async with asyncio.TaskGroup() as group:
            while time.time() < until:
                if name != SLEEPY or time.time() % PERIOD_S < CALLED_S:
                    group.create_task(self._ask(name, url))
                await asyncio.sleep(self.rng.expovariate(self.rate_per_s * SHARES[name]))

    async def _ask(self, name: str, url: str) -> None:
        try:
            said = await call(f"{url}/cook", seconds=HANDLER_S)
        except (Refused, aiohttp.ClientError, TimeoutError):
            self.failures[name] += 1
        else:
            of_process = self.handlers.setdefault(name, {}).setdefault(said["pid"], [])
            of_process.append((said["began"], said["ended"]))

    async def crash_on(self, url: str, until: float) -> None:
        while time.time() < until:
            await asyncio.sleep(min(CRASH_EVERY_S, max(0.0, until - time.time())))
            with suppress(Refused, aiohttp.ClientError, TimeoutError):
                self.crashes += 1
                await call(f"{url}/crash")

    def handlers_s(self, name: str) -> float:
        """For how long any handler of a replica ran, of all replicas together."""
        return sum(map(_covered_s, self.handlers.get(name, {}).values()))


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=60.0, help="how long it lasts (60)")
    parser.add_argument("--rate", type=float, default=5.0, help="requests in a second (5)")
    parser.add_argument("--seed", type=int, default=1, help="of when requests come (1)")


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    verdict = Verdict()
    environ = {"PYTHONPATH": str(SHAM)}
    together: dict[str, list[Taken]] = {}
    calls = Calls(flags.rate, random.Random(flags.seed))
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(kitchens(folder, environ=environ, standby=FORKS))
        lives = await stack.enter_async_context(watched_lives(place.platform.data))
        begun = time.time()
        urls = {name: await _deploy(place, name) for name in SHARES}
        until = time.time() + flags.minutes * 60
        async with asyncio.TaskGroup() as group:
            for name, url in urls.items():
                group.create_task(calls.go_on(name, url, until))
            group.create_task(calls.crash_on(urls[CRASHING], until))
        for name in SHARES:
            for answer in await _answers(place, name, begun):
                row = _row(name, answer, lives.of(name), calls.handlers_s(name))
                verdict.rows.append(row)
                together.setdefault(answer.what, []).append(row)
    for what, rows in together.items():
        off = 100 * (sum(row.parts_s for row in rows) / sum(row.lived_s for row in rows) - 1)
        verdict.figures[f"all three, {what}: parts are off, %"] = off
        verdict.expect(
            abs(off) <= 100 * TOLERATED, f"parts by {what} are {off:+.3f} % off the replicas' lives"
        )
    verdict.figures |= {
        "lasted, min": (time.time() - begun) / 60,
        "handlers that answered": sum(
            len(times) for one in calls.handlers.values() for times in one.values()
        ),
        "requests that failed, by deployment": dict(calls.failures),
        "crashes": calls.crashes,
    }
    verdict.expect(len(lives.of(SLEEPY)) > 1, "the sleepy one never came back: it is too short")
    verdict.expect(len(lives.of(CRASHING)) > 1, "the crashing one never crashed: it is too short")
    return verdict


async def _deploy(place: Kitchens, name: str) -> str:
    """Its URL; each replica has one GPU."""
    settings = {
        "scaling": {"min_replicas": 0, "max_replicas": 1, **SCALING[name]},
        "config_overrides": {"resources": {"gpu": 1}, "traffic": {"concurrency": 4}},
    }
    await place.rough.deploy(name, place.bento.tag, Kitchen=settings)

    async def started() -> bool:
        return bool((await place.platform.ask(name))["status"] in ("running", "scaled-to-zero"))

    await until(started, BUILD_S)
    return await place.platform.url_of(name)


async def _answers(place: Kitchens, name: str, begun: float) -> list[Answer]:
    found = []
    for step_s in STEPS_S:
        asked_at = time.time()
        path = f"/series?from={begun}&to={asked_at}&step={step_s}"
        series = await place.platform.ask(name, path)
        for kind in KINDS:
            parts = {use: sum(s or 0 for s in seconds) for use, seconds in series[kind].items()}
            found.append(Answer(f"series of {series['step_s']} s", kind, parts, asked_at))
    asked_at = time.time()
    costs = await place.platform.page(f"costs?from={begun}&by=deployment")
    (mine,) = [item for item in costs["items"] if item["deployment"] == name]
    return found + [Answer("costs", kind, mine[kind], asked_at) for kind in KINDS]


def _row(name: str, answer: Answer, lives: list[Life], handlers_s: float) -> Taken:
    counted = [(life.gpus if answer.kind == "gpu_s" else 1.0, life) for life in lives]
    lived_s = sum(number * life.lived_s(answer.at) for number, life in counted)
    parts_s = sum(answer.parts.values())
    return Taken(
        deployment=name,
        answer=answer.what,
        lives=len(lives),
        lived_s=lived_s,
        parts_s=parts_s,
        off=100 * (parts_s / lived_s - 1) if lived_s else 100.0,
        busy_s=answer.parts["busy"],
        handlers_s=handlers_s,
        starting_s=answer.parts["starting"],
        started_s=sum(number * life.started_s(answer.at) for number, life in counted),
    )


def _covered_s(spans: list[tuple[float, float]]) -> float:
    """How long there was at least one of them."""
    covered_s, until = 0.0, 0.0
    for began, ended in sorted(spans):
        covered_s += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return covered_s
