"""Kill -9 of any one process, at a random moment of any operation.

Each point is an operation, a victim and a moment. A user repeats what was not answered, and never
what was. When the platform is at rest again, it must have kept what it answered, every process and
port must belong to something, and no request may have failed but those that the killed gateway or
replica was serving.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import aiohttp

from loadtests.harness.inspection import children_of, leader_of, settled
from loadtests.harness.verdict import Verdict
from loadtests.systems.kitchens import kitchens
from loadtests.systems.retrying_user import RetryingUser
from loadtests.systems.steady_load import Failure, SteadyLoad, steady_load
from tests.support.control_plane.cloud import Refused
from tests.support.end_to_end.platform_process import Platform
from tests.support.patience import until

ROLES = ("control-plane", "gateway", "agent")
CALLERS = 3
PACE_S = 0.05
REST_S = 60.0
"""How long the platform may take after a kill until it is healthy and at rest."""
FIRST_GUESS_S = 1.5
"""How long an operation is expected to take at first; later it is the time that it took last."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--points", type=int, default=100, help="kills (100)")
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="the same seed kills the same processes at the same moments (1)",
    )
    parser.add_argument("--keep", type=Path, help="copy the platform's logs there")


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    """At least one point of each operation and of each victim, the others by chance."""
    rng = random.Random(flags.seed)
    async with kitchens(folder) as place:
        platform = place.platform
        try:
            user = RetryingUser(platform, place.rough, place.bento.tag, rng)
            await user.prepare()
            kills = Kills(platform, user, rng)
            if trouble := await kills.rest():
                raise AssertionError(f"before any kill: {trouble}")
            url = await platform.url_of("steady")
            async with steady_load(CALLERS, f"{url}/cook", seconds=PACE_S) as load:
                for number in range(flags.points):
                    await kills.strike(number, load)
            return kills.verdict(load)
        finally:
            if flags.keep:
                await asyncio.to_thread(_keep_logs, platform, flags.keep)


def _keep_logs(platform: Platform, to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    for log in [platform.log, *(platform.data / "logs").iterdir()]:
        (to / log.name).write_bytes(log.read_bytes())


@dataclass
class Kills:
    """The points that were tried, and what was found at them."""

    platform: Platform
    user: RetryingUser
    rng: random.Random
    tried: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    allowed: Counter[str] = field(default_factory=Counter)
    usual_s: dict[str, float] = field(default_factory=dict)
    without: int = 0
    """Requests sent while control plane, agent or `up` was dead."""

    async def strike(self, number: int, load: SteadyLoad) -> None:
        """One point: the user operates, a process is killed, and the platform comes to rest."""
        operations, victims = list(self.user.operations), [*ROLES, "up", "replica", "worker"]
        name = operations[number] if number < len(operations) else self.rng.choice(operations)
        victim = victims[number % 6] if number < 6 else self.rng.choice(victims)
        now = asyncio.get_running_loop().time
        moment_s = self.rng.uniform(0, self.usual_s.get(name, FIRST_GUESS_S))
        began, sent = now(), load.sent
        operating = asyncio.create_task(self.user.operations[name]())
        await asyncio.sleep(moment_s)
        killed = now()
        trouble = ""
        try:
            async with asyncio.timeout(REST_S):
                await self.kill(victim)
                await operating
        except (TimeoutError, AssertionError, Refused) as error:
            operating.cancel()
            trouble = f"it did not end: {error!r}"
        trouble = trouble or await self.rest()
        self.usual_s[name] = min(5.0, max(0.3, now() - began - 2 * (now() - began - moment_s) / 3))
        self.without += (load.sent - sent) * (victim in ("control-plane", "agent", "up"))
        not_allowed = self.judge(victim, load.take(), killed)
        trouble = trouble or (f"requests failed: {not_allowed[0].what}" if not_allowed else "")
        point = f"{name}, {victim} killed after {moment_s:.2f} s"
        print(f"{number + 1:4} {point}: {trouble or 'held'} ({now() - began:.1f} s)", flush=True)
        for key in (f"killed: {victim}", f"during: {name}"):
            self.tried[key] += 1
            self.held[key] += not trouble
        if trouble:
            self.broken.append(f"point {number + 1}: {point}: {trouble}")

    async def kill(self, victim: str) -> None:
        """Sends SIGKILL; returns when a killed role runs again, or a killed replica is noticed."""
        if victim == "up":
            self.platform.kill()
            await self.platform.start()
            return
        if victim in ROLES:
            pid = self.platform.pid(victim)
            os.kill(pid, signal.SIGKILL)

            async def back() -> bool:
                return self.platform.pid(victim) != pid and await self.platform.healthy()

            await until(back, REST_S)
            return
        name = "steady" if victim == "replica" else "twins"
        leaders = await until(partial(self.leaders, name), REST_S)
        leader = self.rng.choice(leaders)
        pid = leader if victim == "replica" else self.rng.choice(children_of(leader) or [leader])
        os.kill(pid, signal.SIGKILL)

        async def noticed() -> bool:
            return leader not in await self.leaders(name)

        await until(noticed, REST_S)

    async def leaders(self, name: str) -> list[int]:
        """The processes of the deployment's ready replicas; none while the API does not answer."""
        with suppress(aiohttp.ClientError, AssertionError):
            ready = await self.platform.replicas(name, "ready")
            found = [leader_of(self.platform, replica["id"]) for replica in ready]
            return [pid for pid in found if pid]
        return []

    def judge(self, victim: str, failures: list[Failure], killed: float) -> list[Failure]:
        """The failures that this kill does not excuse."""
        excused = [f for f in failures if victim in ("gateway", "replica") and f.ended >= killed]
        if victim == "replica":
            excused = excused[:1]  # its one slot
        self.allowed[victim] += len(excused)
        return [failure for failure in failures if failure not in excused]

    async def rest(self) -> str:
        """Waits until the platform is as it answered. Returns a sentence about what is not."""
        trouble = ""

        async def as_answered() -> bool:
            nonlocal trouble
            trouble = await self.user.missing()
            return not trouble

        with suppress(TimeoutError):
            await until(as_answered, REST_S)
        ports = {name: wanted.port for name, wanted in self.user.wanted.items()}
        return trouble or await settled(self.platform, ports, REST_S)

    def verdict(self, load: SteadyLoad) -> Verdict:
        points = sum(n for key, n in self.tried.items() if key.startswith("killed"))
        figures: dict[str, object] = {
            "points tried": points,
            "points held": sum(n for key, n in self.held.items() if key.startswith("killed")),
            "requests sent": load.sent,
            "of them while a role but the gateway was down": self.without,
            "requests failed, as the gateway died": self.allowed["gateway"],
            "requests failed, as their replica died": self.allowed["replica"],
        }
        figures |= {key: f"{self.held[key]} of {n} held" for key, n in sorted(self.tried.items())}
        return Verdict(figures, self.broken)
