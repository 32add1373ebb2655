"""Revisions roll under constant load: good ones, bad ones, and the same again.

No request may fail, whatever rolls; what cannot start leaves the old revision serving.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests.harness.verdict import Verdict
from loadtests.systems.rolling_load import PAIR, Caller, kitchen_callers, pair_callers, under_load
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.patience import until
from tests.support.services.bentos import KITCHEN

ROLLED_S = 120.0
CONCURRENCIES = (1, 4)
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
REASONS = {"bad bento": "this one never starts", "bad environment": "uv pip install"}
"""What the platform must say of a revision that cannot start."""
SCALING = {"min_replicas": 1, "max_replicas": 3, "policy": {"scale_down_stabilization_window": 60}}


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rollouts", type=int, default=20, help="changes of each deployment")
    parser.add_argument("--only", choices=("kitchen", "pair"), help="one service, or one of two")


@dataclass(frozen=True)
class Change:
    """One update of a deployment, and its expected result."""

    what: str
    body: dict[str, Any]
    fails_with: str = ""
    """A part of the reason; empty = the revision must serve."""
    same: bool = False
    """No replica may start or end."""


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
    verdict = Verdict()
    platform = Platform(folder / "data")
    try:
        await platform.start()
        laptop = await Laptop.at(folder / "laptop", platform)
        async with RoughClient(platform) as rough:
            if flags.only != "pair":
                tags = await _pushed(laptop, rough, "kitchen", KITCHEN)
                for each in CONCURRENCIES:
                    wanted, name = Wanted(tags, ("Kitchen",), each), f"kitchen-{each}"
                    asked = kitchen_callers, flags.rollouts
                    await _roll(platform, rough, verdict, name, wanted, *asked)
            if flags.only != "kitchen":
                tags = await _pushed(laptop, rough, "pair", PAIR)
                wanted = Wanted(tags, ("Front", "Back"), concurrency=4)
                await _roll(platform, rough, verdict, "pair", wanted, pair_callers, flags.rollouts)
        return verdict
    finally:
        platform.destroy()


async def _pushed(laptop: Laptop, rough: RoughClient, name: str, source: str) -> dict[str, str]:
    """The tags of two good bentos, one whose service raises, one that cannot be installed."""
    await laptop.build(name, source)
    first = Bento.read(laptop.home / "bentos" / name / "v1")
    raising = source + "\n\nraise RuntimeError('this one never starts')\n"
    bentos = {
        "v1": first,
        "v2": first.changed(f"{name}-2", {"src/service.py": source.replace('"v1"', '"v2"')}),
        "bad bento": first.changed(f"{name}-raising", {"src/service.py": raising}),
        "bad environment": first.changed(
            f"{name}-nowhere",
            {"env/python/requirements.txt": "./wheels/nowhere-1.0-py3-none-any.whl\n"},
        ),
    }
    return {what: await rough.push(bento) for what, bento in bentos.items()}


async def _roll(
    platform: Platform,
    rough: RoughClient,
    verdict: Verdict,
    name: str,
    wanted: Wanted,
    callers: Callable[[str], list[Caller]],
    rollouts: int,
) -> None:
    await rough.call("POST", "/api/v2/deployments", {"name": name, **wanted.changed("").body})
    await _ended(platform, name, 1)
    came_out: dict[str, int] = {}
    number = 1
    async with under_load(callers(await platform.url_of(name))) as load:
        for what in itertools.islice(itertools.cycle(CYCLE), rollouts):
            change = wanted.changed(what)
            load.during = f"{what} ({number})"
            before = await platform.ask(name)
            await rough.call("PUT", f"/api/v2/deployments/{name}", change.body)
            number += not change.same
            page = await _ended(platform, name, number)
            problem = _problem(change, before, page, number)
            if problem:
                verdict.broken.append(f"{name}, {what}: {problem}")
            came_out[what] = came_out.get(what, 0) + (not problem)
    await platform.delete(name)
    versions = ", ".join(sorted(load.versions))
    verdict.figures[f"{name}: as meant"] = ", ".join(f"{n} {w}" for w, n in came_out.items())
    verdict.figures[f"{name}: requests sent"] = load.sent
    verdict.figures[f"{name}: requests failed"] = len(load.failures)
    verdict.figures[f"{name}: versions that answered"] = versions
    verdict.figures[f"{name}: longest time without an answer, s"] = load.longest_gap_s
    verdict.broken += [f"{name}: {failure}" for failure in load.failures[:10]]
    if load.versions != {"v1", "v2"}:
        verdict.broken.append(f"{name}: only {versions} answered, so nothing was rolled out")


async def _ended(platform: Platform, name: str, number: int) -> dict[str, Any]:
    """The deployment when the roll-out of revision `number` has ended and old replicas are gone."""
    page: dict[str, Any] = {}

    async def ended() -> bool:
        page.update(await platform.ask(name))
        serving = {replica["revision"] for replica in page["live"]["replicas"]}
        steady = page["status"] in ("running", "failed") and len(serving) == 1
        return steady and page["revision"] == number

    try:
        await until(ended, ROLLED_S)
    except TimeoutError:
        page["status"] = f"{page['status']} for {ROLLED_S:g} s"
    return page


def _problem(change: Change, before: dict[str, Any], page: dict[str, Any], number: int) -> str:
    """What is not as expected; empty if all is."""
    ids = [[replica["id"] for replica in each["live"]["replicas"]] for each in (before, page)]
    if change.fails_with:
        if page["status"] != "failed" or change.fails_with not in page["reason"]:
            return f"it is {page['status']}: {page['reason']}"
        if "keeps serving" not in page["reason"]:
            return f"the reason does not say that the old revision serves: {page['reason']}"
    elif page["status"] != "running":
        return f"revision {number} is {page['status']}: {page['reason']}"
    if change.same and ids[0] != ids[1]:
        return f"replicas were {ids[0]} and are {ids[1]}"
    return ""
