"""Kill -9 of any one process, at a random moment of any operation.

Each point is an operation, a victim and a moment. A user repeats what was not answered, and never
what was. When the platform is at rest again, all that was answered must be there and done, every
process and port must belong to something, and no request may have failed but those that the
gateway, or the replica that was killed, had in its hands.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from loadtests.harness.inspection import children_of, leader_of, settled
from loadtests.harness.verdict import Verdict
from loadtests.systems.steady_load import Failure, SteadyLoad, steady_load
from tests.support.control_plane.cloud import Refused, tar_of
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.patience import until
from tests.support.services.bentos import KITCHEN, SLEEPY
from tests.support.services.calling import call

ROLES = ("control-plane", "gateway", "agent")
CALLERS = 3
PACE_S = 0.05
REST_S = 60.0
"""How long the platform may take after a kill until it is whole and at rest."""
FIRST_GUESS_S = 1.5
"""How long an operation takes; from then on, as long as it took last."""
DEPLOYMENTS = "/api/v2/deployments"
TWO = {"Kitchen": {"scaling": {"min_replicas": 2, "max_replicas": 2}}}
WORKERS = {"Kitchen": {"config_overrides": {"workers": 2}}}
DONE_ALREADY = (404, 409)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--points", type=int, default=100, help="kills (100)")
    parser.add_argument("--seed", type=int, default=1, help="what is killed, and when (1)")
    parser.add_argument("--keep", type=Path, help="copy the platform's logs there")


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    """At least one point of each operation and of each victim, the others by chance."""
    platform = Platform(folder / "data")
    rng = random.Random(flags.seed)
    try:
        await platform.start()
        home = folder / "laptop"
        home.mkdir()
        bento = await _kitchen(platform, home)
        async with RoughClient(platform) as rough:
            storm = Storm(platform, rough, bento.tag, rng)
            await storm.prepare()
            url = await platform.url_of("steady")
            async with steady_load(CALLERS, f"{url}/cook", seconds=PACE_S) as load:
                for number in range(flags.points):
                    await storm.strike(number, load)
        return storm.verdict(load)
    finally:
        if flags.keep:
            await asyncio.to_thread(_keep_logs, platform, flags.keep)
        platform.destroy()


async def _kitchen(platform: Platform, home: Path) -> Bento:
    """The bento of the scenarios, pushed; its environment is built by the first deployment."""
    laptop = Laptop(home)
    await laptop.login(platform)
    tag = await laptop.build("kitchen", KITCHEN)
    bento = Bento.read(home / "bentos" / "kitchen" / "v1")
    async with RoughClient(platform) as rough:
        assert await rough.push(bento) == tag
    return bento


def _keep_logs(platform: Platform, to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    for log in [platform.log, *(platform.data / "logs").iterdir()]:
        (to / log.name).write_bytes(log.read_bytes())


@dataclass
class Wanted:
    """What was answered of a deployment: that it would be so."""

    port: int
    turn: str = ""
    """The value of an environment variable that its latest revision has."""
    statuses: tuple[str, ...] = ("running",)


@dataclass
class Storm:
    platform: Platform
    rough: RoughClient
    bento: str
    rng: random.Random
    wanted: dict[str, Wanted] = field(default_factory=dict)
    uploaded: list[str] = field(default_factory=list)
    tried: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    allowed: Counter[str] = field(default_factory=Counter)
    usual_s: dict[str, float] = field(default_factory=dict)
    turns: int = 0
    without: int = 0
    """Requests sent while control plane, agent or `up` was dead."""

    async def prepare(self) -> None:
        await self.deploy("steady", TWO)
        await self.deploy("elastic", {"Kitchen": {"scaling": {**SLEEPY, "max_replicas": 2}}})
        self.wanted["elastic"].statuses = ("running", "scaled-to-zero")
        await self.deploy("twins", WORKERS)
        await self.deploy("switch", {})
        if trouble := await self.rest():
            raise AssertionError(f"before any kill: {trouble}")

    # One point ---------------------------------------------------------------------------

    async def strike(self, number: int, load: SteadyLoad) -> None:
        """Operate, kill, wait, look."""
        operations, victims = list(self.operations), [*ROLES, "up", "replica", "worker"]
        name = operations[number] if number < len(operations) else self.rng.choice(operations)
        victim = victims[number % 6] if number < 6 else self.rng.choice(victims)
        now = asyncio.get_running_loop().time
        moment_s = self.rng.uniform(0, self.usual_s.get(name, FIRST_GUESS_S))
        began, sent = now(), load.sent
        operating = asyncio.create_task(self.operations[name](self))
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
        """SIGKILL; returns when what starts roles again has done so."""
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
        """The processes of the deployment's ready replicas; none while nobody answers."""
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
        """Wait until all is as it was answered; what is not, in a sentence."""
        trouble = ""

        async def as_answered() -> bool:
            nonlocal trouble
            trouble = await self.missing()
            return not trouble

        with suppress(TimeoutError):
            await until(as_answered, REST_S)
        ports = {name: wanted.port for name, wanted in self.wanted.items()}
        return trouble or await settled(self.platform, ports, REST_S)

    async def missing(self) -> str:
        try:
            pages = await self.rough.call("GET", "/api/v1/hotplate/deployments")
        except (aiohttp.ClientError, Refused, TimeoutError) as error:
            return f"the API does not answer: {error!r}"
        found = {page["name"]: page for page in pages}
        if found.keys() != self.wanted.keys():
            return f"{sorted(found)} are deployed, not {sorted(self.wanted)}"
        for name, wanted in self.wanted.items():
            page = found[name]
            if page["status"] not in wanted.statuses:
                return f"{name} is {page['status']} ({page['reason']}), not {wanted.statuses[0]}"
            if page["serving"] != page["revision"]:
                return f"{name}: revision {page['serving']} serves, not {page['revision']}"
            detail = await self.platform.ask(name)
            turns = [env["value"] for env in detail["config"]["envs"]]
            if wanted.turn and turns != [wanted.turn]:
                return f"{name} has {turns}, not {wanted.turn}"
            draining = [r for r in detail["live"]["replicas"] if r["state"] != "ready"]
            if draining:
                return f"{name}: replica {draining[0]['id']} is {draining[0]['state']}"
        for one in self.uploaded[-1:]:
            model = await self.rough.call("GET", one)
            if model["upload_status"] != "success":
                return f"{one} is {model['upload_status']}"
        return ""

    # What users do -----------------------------------------------------------------------

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """Ask until there is an answer; what had been done before a lost one is refused then."""
        lost = False
        while True:
            try:
                return await self.rough.call(method, path, body)
            except (aiohttp.ClientError, TimeoutError):
                lost = True
                await asyncio.sleep(0.2)
            except Refused as refused:
                if not lost or refused.status not in DONE_ALREADY:
                    raise
                return None

    async def deploy(self, name: str, services: dict[str, Any]) -> None:
        body = {"name": name, "bento": self.bento, "services": services}
        await self.ask("POST", DEPLOYMENTS, body)
        page = await self.ask("GET", f"{DEPLOYMENTS}/{name}")
        self.wanted[name] = Wanted(int(page["urls"][0].rpartition(":")[2]))

    async def deploy_new(self) -> None:
        self.turns += 1
        await self.deploy(f"new-{self.turns}", {})
        while len(self.wanted) > 6:  # the machine is small
            await self.delete()

    async def delete(self) -> None:
        name = next((name for name in self.wanted if name.startswith("new-")), None)
        if name is None:
            await self.deploy_new()
            return
        await self.ask("DELETE", f"{DEPLOYMENTS}/{name}")
        del self.wanted[name]

    async def update(self, name: str, services: dict[str, Any]) -> None:
        self.turns += 1
        turn = str(self.turns)
        envs = [{"name": "TURN", "value": turn}]
        body = {"bento": self.bento, "services": services, "envs": envs}
        await self.ask("PUT", f"{DEPLOYMENTS}/{name}", body)
        self.wanted[name].turn = turn

    async def roll_out(self) -> None:
        await self.update("steady", TWO)

    async def terminate_and_update(self) -> None:
        await self.ask("POST", f"{DEPLOYMENTS}/switch/terminate")
        await self.update("switch", {})

    async def upload(self) -> None:
        """A model in three parts."""
        self.turns += 1
        about = f"name: numbers\nversion: '{self.turns}'\n"
        tar = tar_of({"model.yaml": about, "weights": self.rng.randbytes(300_000)})
        parts = [tar[:100_000], tar[100_000:200_000], tar[200_000:]]
        manifest = {
            "module": "",
            "api_version": "v1",
            "bentoml_version": "1.4.39",
            "size_bytes": len(tar),
            "metadata": {},
            "context": {},
            "options": {},
        }
        while True:
            try:
                one = await self.rough.register("model", "numbers", str(self.turns), manifest)
                upload, done = await self.rough.send_parts(one, parts)
                body = {"upload_id": upload, "parts": done}
                await self.rough.call("PATCH", f"{one}/complete_multipart_upload", body)
                break
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(0.2)
            except Refused as refused:
                if refused.status != 409:
                    raise
                break
        await self.ask("PATCH", f"{one}/finish_upload", {"status": "success", "reason": ""})
        self.uploaded.append(one)

    async def scale_up(self) -> None:
        url = await self.url("elastic")
        for _ in range(3):
            await asyncio.gather(*(self.cook(url, 0.4) for _ in range(2)))

    async def drain(self) -> None:
        """Scale up, and be there when it comes down."""
        url = await self.url("elastic")
        await asyncio.gather(*(self.cook(url, 0.1) for _ in range(2)))
        await asyncio.sleep(2)

    async def cook(self, url: str, seconds: float) -> None:
        while True:
            try:
                await call(f"{url}/cook", seconds=seconds)
                return
            except aiohttp.ClientError:  # the gateway's death; a refusal is none
                await asyncio.sleep(0.2)

    async def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.wanted[name].port}"

    @property
    def operations(self) -> dict[str, Callable[[Storm], Coroutine[Any, Any, None]]]:
        return {
            "deploy": Storm.deploy_new,
            "upload": Storm.upload,
            "rollout": Storm.roll_out,
            "scale up": Storm.scale_up,
            "drain": Storm.drain,
            "delete": Storm.delete,
            "terminate, update": Storm.terminate_and_update,
        }

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
