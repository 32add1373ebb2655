"""Revisions roll by each deployment_strategy: nothing fails, and the strategy's bounds hold.

A deployment of a fixed number of replicas is asked at a rate, with streams, long requests and tasks
under way, while good revisions, one that never starts, and one whose environment cannot be built
follow each other. It is looked at 20 times a second: there are never more replicas, nor fewer ready
ones, than the strategy says.
"""

from __future__ import annotations

import argparse
import itertools
import math
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotplate.platform.controller.rollouts.strategies import FIRST_STEP, SURGE, Strategy
from loadtests.harness.report import column
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
from loadtests.systems.rolling_load import Load, kitchen_callers, task_caller, under_load
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform
from tests.support.end_to_end.replica_watch import ReplicaWatch, watched
from tests.support.end_to_end.rough_client import RoughClient
from tests.support.services.bentos import SIMMERING

CYCLE = ("bento", "same", "variable", "bad bento", "variable", "bad environment", "bento")
SLOTS = 16
RAMP_S = 1


def add_flags(parser: argparse.ArgumentParser) -> None:
    names = [each.value for each in Strategy]
    parser.add_argument("--strategies", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--rollouts", type=int, default=len(CYCLE), help="changes by each (7)")
    parser.add_argument("--replicas", type=int, default=4, help="of the deployment (4)")
    parser.add_argument("--rate", type=float, default=50.0, help="requests/s (50)")


@dataclass(frozen=True)
class StrategyRow:
    """What was seen of one strategy."""

    strategy: str
    as_meant: int = column("changes as meant")
    most: int = column("most replicas")
    may_be: int = column("may be")
    fewest: int = column("fewest ready")
    must_be: int = column("must be")
    requests: int = column("requests at the rate")
    others: int = column("streams, tasks, others")
    failed: int = column("failed")
    longest_gap_s: float = column("longest s without an answer", 2)


def bounds_of(strategy: Strategy, replicas: int) -> tuple[int, int]:
    """The most replicas at once, and the fewest ready ones, where so many are wanted."""
    if strategy is Strategy.CONTROLLED:
        first = math.ceil(replicas / FIRST_STEP)
        steps = [0, first]
        while steps[-1] < replicas:
            steps.append(min(2 * steps[-1] + first, replicas))
        return replicas, replicas - max(b - a for a, b in itertools.pairwise(steps))
    more = {
        Strategy.NONE: replicas,
        Strategy.ROLLING: math.ceil(replicas / SURGE),
        Strategy.RAMPED: 1,
        Strategy.RECREATE: 0,
    }[strategy]
    return replicas + more, 0 if strategy is Strategy.RECREATE else replicas


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    platform = Platform(folder / "data")
    try:
        await platform.start()
        laptop = await Laptop.at(folder / "laptop", platform)
        async with RoughClient(platform) as rough:
            tags = await pushed(laptop, rough, "kitchen", SIMMERING)
            trial = Trial(platform, rough, tags, flags, folder)
            for name in flags.strategies:
                await trial.roll(Strategy(name))
            return trial.verdict
    finally:
        platform.destroy()


class Trial:
    """The platform, its client, and what was found."""

    def __init__(
        self,
        platform: Platform,
        rough: RoughClient,
        tags: dict[str, str],
        flags: argparse.Namespace,
        folder: Path,
    ) -> None:
        self.verdict = Verdict()
        self._platform = platform
        self._rough = rough
        self._tags = tags
        self._flags = flags
        self._folder = folder

    async def roll(self, strategy: Strategy) -> None:
        """Rolls a deployment by this strategy, and notes what was seen."""
        name = f"by-{strategy.lower()}"
        first = {"name": name, **self._body(strategy, "v1", 0)}
        await self._rough.call("POST", "/api/v2/deployments", first)
        await ended(self._platform, name, 1)
        url = await self._platform.url_of(name)
        asking = open_load(
            url,
            "/cook",
            self._flags.rate,
            self._folder / f"load-{name}",
            body=COOKING,
            most_s=self._flags.rollouts * ROLLED_S,
        )
        callers = [*kitchen_callers(url), *task_caller(url)]
        async with AsyncExitStack() as stack:
            at_rate = await stack.enter_async_context(asking)
            load = await stack.enter_async_context(under_load(callers))
            watch = await stack.enter_async_context(watched(self._platform, name))
            as_meant = await self._roll_on(name, strategy, load)
        await self._platform.delete(name)
        self._note(strategy, as_meant, watch, at_rate, load)

    async def _roll_on(self, name: str, strategy: Strategy, load: Load) -> int:
        """How many changes came out as meant."""
        as_meant, version, variable, number = 0, "v1", 0, 1
        for what in itertools.islice(itertools.cycle(CYCLE), self._flags.rollouts):
            version = {"v1": "v2", "v2": "v1"}[version] if what == "bento" else version
            variable += what == "variable"
            bento = what if what in REASONS else version
            body = self._body(strategy, bento, variable)
            change = Change(what, body, REASONS.get(what, ""), same=what == "same")
            load.during = f"{name}, {what}"
            before = await self._platform.ask(name)
            await self._rough.call("PUT", f"/api/v2/deployments/{name}", body)
            number += not change.same
            page = await ended(self._platform, name, number)
            if problem := problem_of(change, before, page, number):
                self.verdict.broken.append(f"{name}, {what}: {problem}")
            as_meant += not problem
        return as_meant

    def _body(self, strategy: Strategy, bento: str, variable: int) -> dict[str, Any]:
        count = self._flags.replicas
        settings: dict[str, Any] = {
            "scaling": {"min_replicas": count, "max_replicas": count},
            "config_overrides": {"traffic": {"concurrency": SLOTS}},
        }
        if strategy is not Strategy.NONE:
            settings["deployment_strategy"] = strategy.value
        return {
            "bento": self._tags[bento],
            "envs": [{"name": "NUMBER", "value": str(variable)}],
            "labels": [{"key": "hotplate/ramp-s", "value": str(RAMP_S)}],
            "services": {"Kitchen": settings},
        }

    def _note(
        self, strategy: Strategy, as_meant: int, watch: ReplicaWatch, at_rate: OpenLoad, load: Load
    ) -> None:
        most, fewest = bounds_of(strategy, self._flags.replicas)
        failed = at_rate.failed + len(load.failures)
        row = StrategyRow(
            strategy.value,
            as_meant,
            watch.most,
            most,
            watch.fewest_ready,
            fewest,
            at_rate.requests,
            load.sent,
            failed,
            load.longest_gap_s,
        )
        verdict = self.verdict
        verdict.rows.append(row)
        verdict.broken += [f"{strategy}: {failure}" for failure in load.failures[:5]]
        verdict.expect(not at_rate.failed, f"{strategy}: {at_rate.failed}: {at_rate.failures[:3]}")
        verdict.expect(watch.most <= most, f"{strategy}: {watch.most} replicas: {watch.seen}")
        verdict.expect(watch.fewest_ready >= fewest, f"{strategy}: few were ready: {watch.seen}")
        verdict.expect(
            at_rate.sent_per_s >= KEPT_UP * at_rate.rate_per_s,
            f"{strategy}: only {at_rate.sent_per_s:.1f} requests/s were sent",
        )
        verdict.expect(load.versions == {"v1", "v2"}, f"{strategy}: only {load.versions} answered")
