"""Kill -9 of any one process, at a random moment of any operation.

Each point is an operation, a victim and a moment. A user repeats what was not answered, and never
what was. When the platform is at rest again, it must have kept what it answered, every process and
port must belong to something, and no request may have failed but those that the killed gateway or
replica was serving.

All the time clients send numbered requests, and replicas write which of them they run: the checker
of recorded histories must find nothing, and of the requests that may run twice 99.9 % must get
their answer, where their clients repeat them once when their connection ends.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import random
import signal
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from hotplate.deploy.process.backoff import BackoffSettings
from loadtests.harness.inspection import children_of, leader_of, settled, tracebacks
from loadtests.harness.verdict import Verdict
from loadtests.history.guarantees import violations
from loadtests.history.observations import History
from loadtests.history.success import lost, success_of, under_way
from loadtests.systems.kitchens import Kitchens, kitchens
from loadtests.systems.recorded_calls import history_of, recorded, recorded_calls
from loadtests.systems.retrying_user import RetryingUser
from loadtests.systems.second_gateway import second_gateway
from loadtests.systems.steady_load import Failure, SteadyLoad, steady_load
from loadtests.systems.templates import SOON, ForkCount
from tests.support.control_plane.cloud import Refused
from tests.support.end_to_end.platform_process import Platform
from tests.support.gateway.gateway_processes import GatewayProcess
from tests.support.patience import until
from tests.support.services import calling

ROLES = ("control-plane", "gateway", "agent")
SECOND, SECOND_FOLDER = "second gateway", "second"
GATEWAYS = ("gateway", SECOND)
CALLERS = 3
PACE_S = 0.05
CLIENTS = 6
PAUSE_S = 0.05
REPEATS = 1
LEAST_SHARE = 0.999
SHOWN = 10
REST_S = BackoffSettings.max_s + 30.0
"""How long the platform may take after a kill until it is healthy and at rest: what is killed again
and again pauses for as long as that before it starts."""
FIRST_GUESS_S = 1.5
"""How long an operation is expected to take at first; later it is the time that it took last."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--points", type=int, default=100, help="kills (100)")
    parser.add_argument("--minutes", type=float, help="kills for so long, in place of --points")
    parser.add_argument(
        "--gateways",
        type=int,
        choices=(1, 2),
        default=2,
        help="with 1 nobody listens while it starts again, so the share has no bound (2)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="the same seed kills the same processes at the same moments (1)",
    )
    parser.add_argument(
        "--keep", type=Path, help="copy the logs there, and what the clients have written"
    )


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    """At least one point of each operation and of each victim, the others by chance."""
    async with kitchens(folder, standby=SOON) as place:
        try:
            return await _stormed(flags, folder, place)
        finally:
            if flags.keep:
                await asyncio.to_thread(_keep_logs, place.platform, folder, flags.keep)


async def _stormed(flags: argparse.Namespace, folder: Path, place: Kitchens) -> Verdict:
    rng, platform = random.Random(flags.seed), place.platform
    bento = recorded(place.bento, platform.shared)
    async with AsyncExitStack() as stack:
        user = RetryingUser(platform, place.rough, await place.rough.push(bento), rng)
        await user.prepare()
        kills = Kills(platform, user, rng, folder / SECOND_FOLDER, stack)
        if flags.gateways == 2:
            await kills.start_second()
        if trouble := await kills.rest():
            raise AssertionError(f"before any kill: {trouble}")
        url, record = await platform.url_of("steady"), folder / "clients.record"
        port = urlsplit(url).port or 80
        async with (
            steady_load(CALLERS, f"{url}/cook", seconds=PACE_S) as load,
            recorded_calls(port, record, clients=CLIENTS, pause_s=PAUSE_S, repeats=REPEATS),
        ):
            await kills.strike_on(flags.points, flags.minutes, load)
        verdict = kills.verdict(load)
        await kills.forks.show(verdict)
        bound = LEAST_SHARE if flags.gateways == 2 else 0.0
        history = history_of(record, platform.shared)
        _judge_history(verdict, history, bound)
        _show_gateways(verdict, under_way(history, kills.without_gateway))
        for log in _logs(platform, folder):
            for what in tracebacks(log.read_text(errors="replace"))[:1]:
                verdict.broken.append(f"{log.name} has a traceback: {what}")
    return verdict


def _judge_history(verdict: Verdict, history: History, bound: float) -> None:
    success = success_of(history)
    verdict.figures |= {
        "numbered requests": len(history.sent),
        "numbered requests, handlers cut by a kill": sum(r.ended_at is None for r in history.runs),
        "idempotent requests": success.asked,
        "idempotent requests answered, %": f"{100 * success.share:.4f}",
        "idempotent requests answered when their client repeated them": success.repeated,
        "idempotent requests lost": [f"{end.request}: {end.outcome}" for end in lost(history)],
    }
    verdict.broken += islice(violations(history), SHOWN)
    if success.share < bound:
        verdict.broken.append(
            f"{success.share:.4%} of the idempotent requests were answered, less than {bound:.1%}"
        )


def _show_gateways(verdict: Verdict, felt: History) -> None:
    """Of the requests that were under way while a gateway was dead."""
    success = success_of(felt)
    if success.asked:
        verdict.figures["idempotent requests while a gateway was dead"] = (
            f"{success.answered} of {success.asked} answered ({100 * success.share:.2f} %), "
            f"{success.repeated} of them repeated by their clients"
        )


def _logs(platform: Platform, folder: Path) -> list[Path]:
    """Those of `up`, of its roles, and of each second gateway."""
    folders = (platform.data / "logs", folder / SECOND_FOLDER)
    return [platform.log, *(log for each in folders for log in sorted(each.glob("*.log")))]


def _keep_logs(platform: Platform, folder: Path, to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    for log in [*_logs(platform, folder), *folder.glob("*.record")]:
        (to / log.name).write_bytes(log.read_bytes())


@dataclass
class Kills:
    """The points that were tried, and what was found at them."""

    platform: Platform
    user: RetryingUser
    rng: random.Random
    folder: Path
    """The second gateway's."""
    stack: AsyncExitStack
    second: GatewayProcess | None = None
    tried: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    allowed: Counter[str] = field(default_factory=Counter)
    usual_s: dict[str, float] = field(default_factory=dict)
    without: int = 0
    """Requests sent while control plane, agent or `up` was dead."""
    without_gateway: list[tuple[float, float]] = field(default_factory=list)
    """From when until when one of the gateways was dead, monotonic seconds."""

    def __post_init__(self) -> None:
        self.forks = ForkCount(self.platform)

    async def start_second(self) -> None:
        starting = second_gateway(self.platform, self.folder)
        self.second = await self.stack.enter_async_context(starting)

    @property
    def victims(self) -> list[str]:
        second = [SECOND] if self.second is not None else []
        return [*ROLES, *second, "up", "replica", "worker"]

    async def strike_on(self, points: int, minutes: float | None, load: SteadyLoad) -> None:
        """As many points, or those of so many minutes."""
        now = asyncio.get_running_loop().time
        ends_at = None if minutes is None else now() + minutes * 60
        number = 0
        while number < points if ends_at is None else now() < ends_at:
            await self.strike(number, load)
            number += 1

    async def strike(self, number: int, load: SteadyLoad) -> None:
        """One point: the user operates, a process is killed, and the platform comes to rest."""
        operations, victims = list(self.user.operations), self.victims
        name = operations[number] if number < len(operations) else self.rng.choice(operations)
        victim = victims[number] if number < len(victims) else self.rng.choice(victims)
        now = asyncio.get_running_loop().time
        moment_s = self.rng.uniform(0, self.usual_s.get(name, FIRST_GUESS_S))
        began, sent = now(), load.sent
        operating = asyncio.create_task(self.user.operations[name]())
        await asyncio.sleep(moment_s)
        killed = now()
        back = math.inf
        trouble = ""
        try:
            async with asyncio.timeout(REST_S):
                await self.kill(victim)
                back = now()
                await operating
        except (TimeoutError, AssertionError, Refused, calling.Refused) as error:
            operating.cancel()
            trouble = f"it did not end: {error!r}"
        trouble = trouble or await self.rest()
        await self.forks.look()
        self.usual_s[name] = min(5.0, max(0.3, now() - began - 2 * (now() - began - moment_s) / 3))
        self.without += (load.sent - sent) * (victim in ("control-plane", "agent", "up"))
        if victim in GATEWAYS:
            self.without_gateway.append((killed, back))
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
        if victim == SECOND and self.second is not None:
            self.second.process.kill()
            await self.second.process.wait()
            await self.start_second()
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
        may_cut = (*GATEWAYS, "replica")
        excused = [f for f in failures if victim in may_cut and f.ended >= killed]
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
            "requests failed, as a gateway died": self.allowed["gateway"] + self.allowed[SECOND],
            "requests failed, as their replica died": self.allowed["replica"],
        }
        figures |= {key: f"{self.held[key]} of {n} held" for key, n in sorted(self.tried.items())}
        return Verdict(figures, self.broken)
