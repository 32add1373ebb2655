"""Of two control planes on one PostgreSQL, the one that acts is killed or stopped, again and again.

Every second time it is SIGKILL, and SIGSTOP in between; one that was stopped goes on a few seconds
after the other one acts, with all that it had in mind. All the time callers ask a deployment of
two replicas, and users ask either control plane to list and to keep things. After each blow a
deployment that sleeps is called, which only the new one can wake. No replica may be started beside
those that there are, and none may end; no request of a caller may fail, and nothing that was
acknowledged may be lost.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import re
import signal
import statistics
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from hotplate.platform.processes.roles import CONTROL_PLANES, SECOND_CONTROL_PLANE
from loadtests.harness.inspection import tracebacks
from loadtests.harness.verdict import Verdict
from loadtests.systems.kitchens import Kitchens, kitchens
from loadtests.systems.steady_load import SteadyLoad, steady_load
from loadtests.systems.templates import SOON
from tests.support.control_plane import postgresql
from tests.support.end_to_end.platform_process import Platform
from tests.support.patience import until
from tests.support.services.calling import Refused, call

TWO = "control_planes = 2\n"
STEADY, SLEEPER = "steady", "sleeper"
REPLICAS = 2
CALLERS = 4
PACE_S = 0.05
LOOK_S = 0.05
ACTS_WITHIN_S = 15.0
GOES_ON_AFTER_S = 3.0
ANSWER = aiohttp.ClientTimeout(total=30.0)
SOON_TOLD = aiohttp.ClientTimeout(total=1.0)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--blows", type=int, default=50, help="kills and stops together (50)")
    parser.add_argument(
        "--seed", type=int, default=1, help="the same seed strikes at the same moments (1)"
    )


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    with postgresql.server() as server:
        database = postgresql.database(server)
        async with kitchens(folder, settings=TWO, standby=SOON, database=database) as place:
            return await storm(place, flags.blows, random.Random(flags.seed))


async def storm(place: Kitchens, blows: int, rng: random.Random) -> Verdict:
    """On a platform with two control planes."""
    planes = Planes(place.platform)
    scaling = {"min_replicas": REPLICAS, "max_replicas": REPLICAS}
    url = await place.deploy(STEADY, **scaling)
    sleeper = await place.deploy(SLEEPER)

    async def both() -> bool:
        return len(await place.platform.replicas(STEADY, "ready")) == REPLICAS

    await until(both)
    replicas = planes.replicas(STEADY)
    async with (
        steady_load(CALLERS, f"{url}/cook", seconds=PACE_S) as load,
        planes.watched(),
        planes.asked() as asked,
    ):
        for number in range(blows):
            await _blow(planes, number, rng, sleeper)
        await planes.whole()
    return await _verdict(planes, asked, load, replicas)


async def _blow(planes: Planes, number: int, rng: random.Random, sleeper: str) -> None:
    """One kill or stop, until both control planes are there again."""
    await planes.whole()
    await asyncio.sleep(rng.uniform(0, 3))
    leader, epoch = await planes.leader()
    how = signal.SIGKILL if number % 2 == 0 else signal.SIGSTOP
    now = asyncio.get_running_loop().time
    pid, began = planes.platform.pid(leader), now()
    os.kill(pid, how)
    stopped = leader if how is signal.SIGSTOP else ""
    took_s = await planes.taken_over(epoch, stopped) - began
    planes.took_s[how.name].append(took_s)
    waking = now()
    trouble = ""
    try:
        await call(f"{sleeper}/cook", seconds=0)
    except (Refused, aiohttp.ClientError, TimeoutError) as error:
        trouble = repr(error)
        planes.broken.append(f"blow {number + 1}: the sleeper was not woken: {trouble}")
    planes.woken_s.append(now() - waking)
    if how is signal.SIGSTOP:
        await asyncio.sleep(GOES_ON_AFTER_S)
        with suppress(ProcessLookupError):  # `hotplate up` ends one that is silent for long
            os.kill(pid, signal.SIGCONT)
    if took_s > ACTS_WITHIN_S:
        planes.broken.append(f"blow {number + 1}: {how.name}: {took_s:.1f} s until another acted")
    print(
        f"{number + 1:4} {how.name} to {leader}: acts after {took_s:.2f} s, woken in "
        f"{planes.woken_s[-1]:.2f} s {trouble}",
        flush=True,
    )


@dataclass
class Asked:
    """What was asked of the control planes, and what of it is in their database."""

    answers: Counter[str] = field(default_factory=Counter)
    kept: list[str] = field(default_factory=list)
    """Secrets that were acknowledged."""


@dataclass
class Planes:
    """The two control planes of a platform, and what was seen of them and of the replicas."""

    platform: Platform
    took_s: dict[str, list[float]] = field(default_factory=lambda: {"SIGKILL": [], "SIGSTOP": []})
    woken_s: list[float] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    """Every replica of the deployment that may have two that there was."""
    most: int = 0
    """Of them at one time."""
    looks: int = 0

    @property
    def urls(self) -> dict[str, str]:
        second = self.platform.noted("ports")[SECOND_CONTROL_PLANE]
        urls = (self.platform.url, f"http://127.0.0.1:{second}")
        return dict(zip(CONTROL_PLANES, urls, strict=True))

    def replicas(self, name: str) -> set[str]:
        """Those that have a folder."""
        folders = os.listdir(self.platform.data / "engine" / "replicas")
        return {each for each in folders if re.match(rf"{name}-\d+-", each)}

    async def health(self, plane: str) -> tuple[int, dict[str, Any]]:
        """The status and body of `/healthz`; 0 where there is no answer."""
        with suppress(aiohttp.ClientError, TimeoutError, json.JSONDecodeError):
            async with (
                aiohttp.ClientSession(timeout=SOON_TOLD) as http,
                http.get(f"{self.urls[plane]}/healthz") as answer,
            ):
                return answer.status, await answer.json()
        return 0, {}

    async def leader(self) -> tuple[str, int]:
        """Which acts, and its epoch."""
        found: list[tuple[str, int]] = []

        async def known() -> bool:
            for plane in CONTROL_PLANES:
                _, said = await self.health(plane)
                if said.get("leader"):
                    found.append((plane, said["epoch"]))
            return bool(found)

        await until(known)
        return found[0]

    async def taken_over(self, epoch: int, stopped: str) -> float:
        """When one acts anew, and a gateway is connected to it: the other one, or that which was
        killed, where it begins again before the other one looks. `stopped` answers nothing."""
        now = asyncio.get_running_loop().time
        while True:
            for plane in CONTROL_PLANES:
                status, said = await self.health(plane) if plane != stopped else (0, {})
                if status == 200 and said["leader"] and said["epoch"] > epoch:
                    return now()
            await asyncio.sleep(LOOK_S)

    async def whole(self) -> None:
        """Both answer, one of them acts, and the other passes on to it."""

        async def both() -> bool:
            said = [await self.health(plane) for plane in CONTROL_PLANES]
            acting = [about.get("leader") for status, about in said if status == 200]
            return sorted(map(str, acting)) == ["False", "True"]

        await until(both)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Looks at the replicas all the time."""

        async def look_on() -> None:
            while True:
                there = self.replicas(STEADY)
                self.seen |= there
                self.most = max(self.most, len(there))
                self.looks += 1
                await asyncio.sleep(LOOK_S)

        looking = asyncio.create_task(look_on())
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    @asynccontextmanager
    async def asked(self) -> AsyncIterator[Asked]:
        """Asks either control plane in turn: for a list, and to keep a secret."""
        asked = Asked()

        async def ask_on() -> None:
            for number in itertools.count():
                plane = CONTROL_PLANES[number % 2]
                await self._ask(asked, plane, "list", "GET", "/api/v2/deployments")
                name = f"s-{number}"
                about = {
                    "name": name,
                    "content": {"type": "env", "items": [{"key": "K", "value": "v"}]},
                }
                if await self._ask(asked, plane, "keep", "POST", "/api/v1/org_secrets", about):
                    asked.kept.append(name)
                await asyncio.sleep(LOOK_S)

        asking = asyncio.create_task(ask_on())
        try:
            yield asked
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _ask(
        self, asked: Asked, plane: str, what: str, method: str, path: str, body: object = None
    ) -> bool:
        headers = {"X-YATAI-API-TOKEN": self.platform.token}
        outcome = "no connection, or it was cut"
        try:
            async with (
                aiohttp.ClientSession(timeout=ANSWER, headers=headers) as http,
                http.request(method, f"{self.urls[plane]}{path}", json=body) as answer,
            ):
                outcome = str(answer.status)
                said = await answer.text()
                if answer.status == 503 and "Retry-After" not in answer.headers:
                    self.broken.append(f"{what}: 503 without Retry-After: {said}")
                elif answer.status not in (200, 503):
                    self.broken.append(f"{what} at {plane}: {answer.status} {said}")
        except (aiohttp.ClientError, TimeoutError):
            pass
        asked.answers[f"{what}: {outcome}"] += 1
        return outcome == "200"


async def _verdict(planes: Planes, asked: Asked, load: SteadyLoad, replicas: set[str]) -> Verdict:
    platform = planes.platform
    failures = load.take()
    there = await _secrets(platform)
    lost = [name for name in asked.kept if name not in there]
    verdict = Verdict(broken=planes.broken)
    for how, took_s in planes.took_s.items():
        verdict.figures[f"{how}"] = len(took_s)
        if took_s:
            verdict.figures[f"{how}: another acts after, s (median, longest)"] = (
                f"{statistics.median(took_s):.2f}, {max(took_s):.2f}"
            )
    verdict.figures |= {
        "requests sent": load.sent,
        "requests failed": len(failures),
        "the sleeper woken after, s (median, longest)": (
            f"{statistics.median(planes.woken_s):.2f}, {max(planes.woken_s):.2f}"
        ),
        "looks at the replicas": planes.looks,
        "most replicas at once": planes.most,
        "replicas that were ever there": len(planes.seen),
        "secrets acknowledged": len(asked.kept),
        "of them lost": len(lost),
    }
    verdict.figures |= dict(sorted(asked.answers.items()))
    verdict.expect(not failures, f"requests failed: {[each.what for each in failures[:3]]}")
    verdict.expect(planes.seen == replicas, f"other replicas than {replicas}: {planes.seen}")
    verdict.expect(not lost, f"acknowledged and lost: {lost[:3]}")
    logs = [platform.log, *(platform.data / "logs").glob("*.log")]
    for log in logs:
        for what in tracebacks(log.read_text(errors="replace"))[:1]:
            verdict.broken.append(f"{log.name} has a traceback: {what}")
    return verdict


async def _secrets(platform: Platform) -> set[str]:
    """The names of all that are kept; one list has at most a thousand of them."""
    names: set[str] = set()
    async with aiohttp.ClientSession(headers={"X-YATAI-API-TOKEN": platform.token}) as http:
        while True:
            url = f"{platform.url}/api/v1/org_secrets?start={len(names)}&count=1000"
            async with http.get(url) as answer:
                items = (await answer.json())["items"]
            if not items:
                return names
            names |= {item["name"] for item in items}
