"""Revisions roll under constant load: good ones, bad ones, and the same again.

No request may fail, whatever rolls; what cannot start leaves the old revision serving. Beside
callers that look at what they are answered, one deployment is asked at a rate, however slowly it
answers.
"""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from loadtests.harness.verdict import Verdict
from loadtests.systems.open_load import OpenLoad, open_load
from loadtests.systems.rolling_changes import (
    COOKING,
    KEPT_UP,
    REASONS,
    ROLLED_S,
    Change,
    ended,
    problem_of,
    pushed,
)
from loadtests.systems.rolling_load import (
    PAIR,
    Caller,
    Load,
    kitchen_callers,
    pair_callers,
    short_caller,
    under_load,
)
from loadtests.systems.templates import SOON, ForkCount
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform
from tests.support.end_to_end.rough_client import RoughClient
from tests.support.services.bentos import KITCHEN

CONCURRENCIES = (1, 4)
AT_RATE, AT_RATE_SLOTS = "kitchen-rate", 16
CYCLE = (
    "bento",
    "same",
    "variable",
    "scaling",
    "same",
    "bad bento",
    "variable",
    "bad environment",
    "scaling",
    "bento",
)
"""The changes, repeated again and again; a good one follows each bad one."""
SCALING = {"min_replicas": 1, "max_replicas": 3, "policy": {"scale_down_stabilization_window": 60}}


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rollouts", type=int, default=20, help="changes of each deployment (20)")
    parser.add_argument("--rate", type=float, default=100.0, help="requests/s of one of them (100)")
    parser.add_argument(
        "--only", choices=("kitchen", "rate", "pair"), help="one service, one at a rate, one of two"
    )


@dataclass
class Wanted:
    """What a deployment should be; good changes are kept."""

    tags: Mapping[str, str]
    """Of the bentos `v1`, `v2`, and of the bad ones by their name in `CYCLE`."""
    services: tuple[str, ...]
    concurrency: int
    version: str = "v1"
    number: int = 0
    least: int = 1

    def changed(self, what: str) -> Change:
        if what == "bento":
            self.version = "v2" if self.version == "v1" else "v1"
        elif what == "variable":
            self.number += 1
        elif what == "scaling":
            self.least = 3 - self.least
        settings = {
            "scaling": {**SCALING, "min_replicas": self.least},
            "config_overrides": {"traffic": {"concurrency": self.concurrency}},
        }
        body = {
            "bento": self.tags[what if what in REASONS else self.version],
            "envs": [{"name": "NUMBER", "value": str(self.number)}],
            "services": dict.fromkeys(self.services, settings),
        }
        return Change(what, body, REASONS.get(what, ""), same=what == "same")


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    platform = Platform(folder / "data", standby=SOON)
    try:
        await platform.start()
        laptop = await Laptop.at(folder / "laptop", platform)
        async with RoughClient(platform) as rough:
            trial = Trial(platform, rough, folder / "load", flags.rollouts)
            if flags.only != "pair":
                tags = await pushed(laptop, rough, "kitchen", KITCHEN)
                for each in CONCURRENCIES if flags.only != "rate" else ():
                    wanted = Wanted(tags, ("Kitchen",), each)
                    await trial.roll(f"kitchen-{each}", wanted, kitchen_callers)
                if flags.only != "kitchen":
                    wanted = Wanted(tags, ("Kitchen",), AT_RATE_SLOTS)
                    await trial.roll(AT_RATE, wanted, short_caller, flags.rate)
            if flags.only in (None, "pair"):
                tags = await pushed(laptop, rough, "pair", PAIR)
                wanted = Wanted(tags, ("Front", "Back"), 4)
                await trial.roll("pair", wanted, pair_callers)
        await ForkCount(platform).show(trial.verdict)
        return trial.verdict
    finally:
        platform.destroy()


@dataclass
class Trial:
    """The platform, its client, and what was found."""

    platform: Platform
    rough: RoughClient
    folder: Path
    """Of the load at a rate."""
    rollouts: int
    verdict: Verdict = field(default_factory=Verdict)

    async def roll(
        self,
        name: str,
        wanted: Wanted,
        callers: Callable[[str], list[Caller]],
        rate_per_s: float = 0.0,
    ) -> None:
        """Rolls a new deployment while the callers call, and others at a rate, if there is one."""
        body = {"name": name, **wanted.changed("").body}
        await self.rough.call("POST", "/api/v2/deployments", body)
        await ended(self.platform, name, 1)
        url = await self.platform.url_of(name)
        async with AsyncExitStack() as stack:
            if rate_per_s:
                asking = open_load(
                    url,
                    "/cook",
                    rate_per_s,
                    self.folder,
                    body=COOKING,
                    most_s=self.rollouts * ROLLED_S,
                )
                at_rate = await stack.enter_async_context(asking)
            load = await stack.enter_async_context(under_load(callers(url)))
            as_meant = await self._roll_on(name, wanted, load)
        await self.platform.delete(name)
        versions = ", ".join(sorted(load.versions))
        self.verdict.figures |= {
            f"{name}: as meant": ", ".join(f"{n} {what}" for what, n in as_meant.items()),
            f"{name}: requests sent": load.sent,
            f"{name}: requests failed": len(load.failures),
            f"{name}: versions that answered": versions,
            f"{name}: longest time without an answer, s": load.longest_gap_s,
        }
        self.verdict.broken += [f"{name}: {failure}" for failure in load.failures[:10]]
        if load.versions != {"v1", "v2"}:
            self.verdict.broken.append(
                f"{name}: only {versions} answered, so nothing was rolled out"
            )
        if rate_per_s:
            self._note_rate(at_rate)

    async def _roll_on(self, name: str, wanted: Wanted, load: Load) -> Counter[str]:
        """How many changes of each kind came out as meant."""
        as_meant = Counter[str]()
        number = 1
        for what in itertools.islice(itertools.cycle(CYCLE), self.rollouts):
            change = wanted.changed(what)
            load.during = f"{what} ({number})"
            before = await self.platform.ask(name)
            await self.rough.call("PUT", f"/api/v2/deployments/{name}", change.body)
            number += not change.same
            page = await ended(self.platform, name, number)
            if problem := problem_of(change, before, page, number):
                self.verdict.broken.append(f"{name}, {what}: {problem}")
            as_meant[what] += not problem
        return as_meant

    def _note_rate(self, load: OpenLoad) -> None:
        what = f"requests at {load.rate_per_s:g}/s"
        self.verdict.figures |= {
            what: load.requests,
            f"{what}: failed": load.failed,
            f"{what}: sent, requests/s": load.sent_per_s,
            f"{what}: p95, s": load.p95_s,
        }
        if load.failed:
            self.verdict.broken.append(f"{what}: {load.failed} failed: {load.failures[:3]}")
        if load.sent_per_s < KEPT_UP * load.rate_per_s:
            self.verdict.broken.append(f"{what}: only {load.sent_per_s:.1f}/s were sent")
