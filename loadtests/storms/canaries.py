"""Three versions beside main: weights and ways to choose change under load, at two gateways.

By each kind of `route_type`, weights change again and again while requests at a rate, streams and
tasks are under way. Nothing fails, no replica starts or ends, and each gateway goes by the new
weights within 2 s of the answer to the change. Then values keep their version while a weight grows
and while gateways and control plane are killed, and a version becomes main.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from operator import eq
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from loadtests.harness.report import column
from loadtests.harness.verdict import Verdict
from loadtests.systems.kitchens import Kitchens, kitchens
from loadtests.systems.pinned_caller import PinnedCaller
from loadtests.systems.second_gateway import second_gateway
from loadtests.systems.version_load import VersionLoad, version_load
from tests.support.patience import until
from tests.support.services.bentos import SIMMERING
from tests.support.services.calling import Tasks

KINDS = ("random", "header", "query")
BY = {"random": "", "header": "X-User", "query": "user"}
SOURCES = {"main": "v1", "next": "v2", "other": "v3", "third": "v4"}
"""What each version's bento calls itself."""
WEIGHTS = ((60, 0, 40), (0, 35, 0), (25, 0, 75), (0, 0, 0), (100, 0, 0), (0, 50, 0))
"""Of the versions beside main; no version has requests before a change and after it, so that the
first answer by the new weights is known."""
IN_FORCE_S = 2.0
ALIKE = 10
"""So many answers in a row by the new weights, and they are in force."""
USERS, CALLS = 2000, 10_000
FOREVER = {"scaling": {"min_replicas": 1, "max_replicas": 1}}
SLOTS = {"config_overrides": {"traffic": {"concurrency": 16, "timeout": 300}}}
WEB = "web"
"""The deployment."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, metavar="KIND")
    parser.add_argument("--changes", type=int, default=20, help="of the weights, by each (20)")
    parser.add_argument("--rate", type=float, default=50.0, help="requests/s (50)")
    parser.add_argument("--calls", type=int, default=CALLS, help="by a weight of 10 % (10,000)")


@dataclass(frozen=True)
class KindRow:
    """What was seen of one `route_type`."""

    kind: str
    changes: int = column("changes")
    requests: int = column("requests")
    streams: int = column("streams")
    tasks: int = column("tasks")
    failed: int = column("failed")
    slowest_s: float = column("in force after s, at most", 2)
    began: int = column("replicas begun or ended")


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    async with kitchens(folder, source=SIMMERING) as place, AsyncExitStack() as stack:
        second = await stack.enter_async_context(second_gateway(place.platform, folder / "second"))
        trial = Trial(place, lambda: (place.platform.pid("gateway"), second.process.pid))
        await trial.begin()
        async with version_load(trial.url, flags.rate, SOURCES) as load:
            for kind in flags.kinds:
                await trial.change_on(kind, flags.changes, load)
            await trial.take_tasks_along()
            await trial.promote(load)
        await trial.grow()
        await trial.share(flags.calls)
        await trial.kill_roles()
        trial.note(load)
        return trial.verdict


class Trial:
    """A deployment with three versions beside main, and what was found."""

    def __init__(self, place: Kitchens, gateways: Callable[[], tuple[int, int]]) -> None:
        self.verdict = Verdict()
        self.url = ""
        self._place = place
        self._platform = place.platform
        self._gateways = gateways
        self._tags: dict[str, str] = {}

    async def begin(self) -> None:
        """Deploys it, and waits until each version has a replica."""
        for version, source in SOURCES.items():
            bento = self._place.bento.changed(
                f"kitchen-{source}", {"src/service.py": SIMMERING.replace('"v1"', f'"{source}"')}
            )
            self._tags[version] = await self._place.rough.push(bento)
        body = {"name": WEB, **self._body((0, 0, 0), "random")}
        await self._place.rough.call("POST", "/api/v2/deployments", body)
        await until(self._all_ready, 120)
        self.url = await self._platform.url_of(WEB)

    async def change_on(self, kind: str, changes: int, load: VersionLoad) -> None:
        """Changes the weights again and again; notes how long each took."""
        before = (load.requests, load.streams, load.tasks, len(load.failures))
        replicas, slowest_s = self._replicas(), 0.0
        for weights in islice(cycle(WEIGHTS), changes):
            slowest_s = max(slowest_s, await self._change(weights, kind))
        after = (load.requests, load.streams, load.tasks, len(load.failures))
        asked, streams, tasks, failed = (n - m for n, m in zip(after, before, strict=True))
        began = len(replicas ^ self._replicas())
        row = KindRow(kind, changes, asked, streams, tasks, failed, slowest_s, began)
        self.verdict.rows.append(row)
        self.verdict.expect(not began, f"{kind}: {began} replicas began or ended")
        self.verdict.expect(
            slowest_s <= IN_FORCE_S, f"{kind}: a change was in force after {slowest_s:.2f} s"
        )

    async def take_tasks_along(self) -> None:
        """Tasks keep the version to which they were submitted."""
        await self._change((50, 0, 50), "random")
        async with aiohttp.ClientSession() as http:
            submitted = [await self._submit(http) for _ in range(20)]
        await self._change((0, 100, 0), "random")
        tasks, kept = Tasks(f"{self.url}/simmer"), 0
        for version, number in submitted:
            await tasks.reached(number, "completed")
            kept += (await tasks.file(number)).decode() == SOURCES[version]
        by_version = dict(Counter(version for version, _ in submitted))
        self.verdict.figures["tasks that kept their version over other weights"] = (
            f"{kept} of {len(submitted)} ({by_version})"
        )
        self.verdict.expect(kept == len(submitted), "a task lost its version")

    async def _submit(self, http: aiohttp.ClientSession) -> tuple[str, str]:
        fields = {"seconds": 3.0}
        async with http.post(f"{self.url}/simmer/submit", json=fields) as answer:
            return answer.headers["Hotplate-Version"], (await answer.json())["task_id"]

    async def grow(self) -> None:
        """A weight grows from 10 to 20 by a header, and nobody moves out."""
        await self._rolled((10, 0, 0), "header")
        before = await self._versions_of(USERS)
        await self._rolled((20, 0, 0), "header")
        after = await self._versions_of(USERS)
        out = sum(old == "next" != new for old, new in zip(before, after, strict=True))
        shares = [f"{100 * each.count('next') / USERS:.1f} %" for each in (before, after)]
        self.verdict.figures["10 to 20 % by header: values there before, after"] = shares
        self.verdict.figures["10 to 20 % by header: values that moved out"] = out
        self.verdict.expect(not out, f"{out} of {USERS} values moved out")

    async def share(self, calls: int) -> None:
        """By a weight of 10 %."""
        await self._rolled((10, 0, 0), "random")
        told = await self._versions_of(calls)
        share = 100 * told.count("next") / calls
        self.verdict.figures[f"10 % of {calls:,} calls at two gateways"] = f"{share:.2f} %"
        self.verdict.expect(abs(share - 10) <= 1, f"10 % were {share:.2f} %")

    async def kill_roles(self) -> None:
        """Values keep their version while each role is killed, and starts again."""
        await self._rolled((30, 30, 30), "header")
        before = await self._versions_of(USERS // 10)
        for role in ("gateway", "control-plane"):
            pid = self._platform.pid(role)
            os.kill(pid, signal.SIGKILL)
            await until(partial(self._is_back, role, pid))
            after = await self._versions_of(USERS // 10)
            same = sum(map(eq, before, after))
            what = f"values that keep their version when the {role} was killed"
            self.verdict.figures[what] = f"{same} of {len(before)}"
            self.verdict.expect(same == len(before), f"{len(before) - same} moved: {role}")

    async def _is_back(self, role: str, pid: int) -> bool:
        return self._platform.pid(role) != pid and await self._platform.healthy()

    async def promote(self, load: VersionLoad) -> None:
        """`next` becomes main under load, and the canary is over; then there is one again."""
        failed = len(load.failures)
        await self._platform.hotplate("rollout", "promote", WEB, "next")

        async def alone() -> bool:
            found = (await self._platform.ask(WEB, "/rollout"))["versions"]
            return [(v["version"], v["bento"]) for v in found] == [("main", self._tags["next"])]

        await until(alone, 120)
        self.verdict.figures["requests that failed while a version was promoted"] = (
            len(load.failures) - failed
        )

    def note(self, load: VersionLoad) -> None:
        self.verdict.figures["answers by version"] = load.answered
        self.verdict.broken += load.failures[:10]

    async def _rolled(self, weights: tuple[int, ...], kind: str) -> None:
        """Weights that need not be known by who answers, and all versions are there."""
        await self._put(weights, kind)
        await until(self._all_ready, 120)
        await asyncio.sleep(IN_FORCE_S)

    async def _put(self, weights: tuple[int, ...], kind: str) -> None:
        path = f"/api/v2/deployments/{WEB}"
        await self._place.rough.call("PUT", path, self._body(weights, kind))

    async def _change(self, weights: tuple[int, ...], kind: str) -> float:
        """How long it takes until both gateways go by new weights, of which none had requests."""
        port = urlsplit(self.url).port or 80
        wanted = {version for version, weight in self._weights(weights).items() if weight}
        callers = [await PinnedCaller.of(port, gateway) for gateway in self._gateways()]
        await self._put(weights, kind)
        answered_at = monotonic()
        times_s = await asyncio.gather(*(_in_force(each, wanted, answered_at) for each in callers))
        for caller in callers:
            caller.close()
        return max(times_s)

    async def _versions_of(self, users: int) -> list[str]:
        """Which version each of so many values has, the gateways by turns."""
        port = urlsplit(self.url).port or 80
        told = [""] * users
        numbers = iter(range(users))

        async def ask_on(caller: PinnedCaller) -> None:
            for number in numbers:
                told[number] = (await _ask(caller, f"user-{number}"))[1]
            caller.close()

        callers = [await PinnedCaller.of(port, each) for each in self._gateways() * 4]
        await asyncio.gather(*map(ask_on, callers))
        return told

    def _weights(self, weights: tuple[int, ...]) -> dict[str, int]:
        others = dict(zip(list(SOURCES)[1:], weights, strict=True))
        return {"main": 100 - sum(weights), **others}

    def _body(self, weights: tuple[int, ...], kind: str) -> dict[str, Any]:
        services = {"Kitchen": {**FOREVER, **SLOTS}}
        versions = {
            version: {"bento": self._tags[version], "weight": weight, "services": services}
            for version, weight in self._weights(weights).items()
            if version != "main"
        }
        canary = {"versions": versions, "route_type": kind, "route_by": BY[kind]}
        return {"bento": self._tags["main"], "services": services, "canary": canary}

    async def _all_ready(self) -> bool:
        found = (await self._platform.ask(WEB, "/rollout"))["versions"]
        return {each["version"] for each in found if each["ready"]} == set(SOURCES)

    def _replicas(self) -> set[str]:
        return set(os.listdir(self._platform.data / "engine" / "replicas"))


async def _in_force(caller: PinnedCaller, wanted: set[str], since: float) -> float:
    """When the first of several answers in a row is by the new weights, after `since`, in s."""
    alike, first = 0, since
    while alike < ALIKE:
        status, version = await _ask(caller, f"user-{monotonic()}")
        if status != 200 or version not in wanted:
            alike = 0
            continue
        alike += 1
        first = monotonic() if alike == 1 else first
    return first - since


async def _ask(caller: PinnedCaller, user: str) -> tuple[int, str]:
    return await caller.ask(f"/cook?user={user}", b"{}", X_User=user)
