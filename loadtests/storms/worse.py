"""A revision, or a canary, that fails half of its answers is stopped, soon after its 20th one.

By each strategy in which two revisions answer beside each other, and by a canary with half of the
requests, at about 50 requests/s.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotplate.platform.controller.rollouts.strategies import Strategy
from loadtests.harness.report import column
from loadtests.harness.verdict import Verdict
from loadtests.systems.kitchens import Kitchens, kitchens
from tests.support.end_to_end.worse_answers import (
    FAILING,
    STOPPED_S,
    answers_of,
    stopped_after_s,
)
from tests.support.patience import until
from tests.support.services.calling import under_load

CANARY = "canary"
SHARING = (Strategy.ROLLING, Strategy.RAMPED, Strategy.CONTROLLED)
CALLERS, PACE_S = 10, 0.2
"""Together 50 requests/s."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--times", type=int, default=3, help="each way (3)")
    parser.add_argument("--replicas", type=int, default=3, help="of the deployment (3)")


@dataclass(frozen=True)
class WorseRow:
    """One deployment that got worse."""

    way: str
    seconds: float = column("stopped s after its 20th answer", 2)
    answers: int = column("its answers by then")
    failed: int = column("of them failed")


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    verdict = Verdict()
    async with kitchens(folder) as place:
        bento = place.bento.changed("kitchen-failing", {"src/service.py": FAILING})
        failing = await place.rough.push(bento)
        for way in (*SHARING, CANARY):
            for time in range(flags.times):
                trial = Trial(place, failing, way, f"{way.lower()}-{time}", flags.replicas)
                row = await trial.run()
                verdict.rows.append(row)
                verdict.expect(
                    row.seconds <= STOPPED_S, f"{way}: {row.seconds:.1f} s after its 20th answer"
                )
    return verdict


@dataclass
class Trial:
    """One deployment, which gets worse under load."""

    place: Kitchens
    failing: str
    way: str
    name: str
    replicas: int

    async def run(self) -> WorseRow:
        rough, platform = self.place.rough, self.place.platform
        good = self._body(self.place.bento.tag)
        await rough.call("POST", "/api/v2/deployments", {"name": self.name, **good})
        await until(self._ready)
        url = await platform.url_of(self.name)
        worse = self._body(self.failing)
        stopped: Callable[[], Awaitable[bool]] = self._rolled_back
        if self.way == CANARY:
            version = {**worse, "weight": 50}
            worse, stopped = {**good, "canary": {"versions": {"next": version}}}, self._weightless
        async with under_load(CALLERS, f"{url}/cook", seconds=PACE_S) as load:
            await rough.call("PUT", f"/api/v2/deployments/{self.name}", worse)
            seconds = await stopped_after_s(load, stopped)
        kind = "CanaryStopped" if self.way == CANARY else "RolloutStopped"
        events = await platform.ask(self.name, "/events")
        assert any(each["kind"] == kind for each in events), f"no event {kind}: {events}"
        await platform.delete(self.name)
        return WorseRow(self.way, seconds, answers_of(load), len(load.failures))

    def _body(self, bento: str) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "scaling": {"min_replicas": self.replicas, "max_replicas": self.replicas},
            "config_overrides": {"traffic": {"concurrency": 16}},
        }
        if self.way != CANARY:
            settings["deployment_strategy"] = self.way
        return {"bento": bento, "services": {"Kitchen": settings}}

    async def _ready(self) -> bool:
        return len(await self.place.platform.replicas(self.name, "ready")) == self.replicas

    async def _rolled_back(self) -> bool:
        return bool((await self.place.platform.ask(self.name))["status"] == "failed")

    async def _weightless(self) -> bool:
        found = (await self.place.platform.ask(self.name, "/rollout"))["versions"]
        weights = [each["weight"] for each in found if each["version"] == "next"]
        events = await self.place.platform.ask(self.name, "/events")
        return weights == [0] and any(each["kind"] == "CanaryStopped" for each in events)
