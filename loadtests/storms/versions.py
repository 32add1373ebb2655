"""The control plane is replaced by the version before it, and back, under requests and pushes.

`--old` is the Python of an installation whose schema is one revision behind, as of a worktree:
`git worktree add ../old COMMIT && make -C ../old install`. The database has the schema of this
version all the time. Gateway and agent go on; the stock client pushes one bento after another, and
again what it could not while no control plane ran.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import aiohttp

from loadtests.harness.inspection import tracebacks
from loadtests.harness.verdict import Verdict
from loadtests.systems.kitchens import AWAKE, Kitchens, kitchens, service_settings
from tests.support.control_plane import postgresql
from tests.support.patience import until
from tests.support.services.bentos import KITCHEN
from tests.support.services.calling import Refused, call

ROLE = "control-plane"
CALLERS = 2
PACE_S = 0.05
PUSHED_S = 300.0


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--old", type=Path, required=True, help="Python of the version before")
    parser.add_argument("--pushes", type=int, default=3, help="with each control plane (3)")
    parser.add_argument("--stores", nargs="+", default=["sqlite", "postgresql"])


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    verdict = Verdict()
    for kind in flags.stores:
        place = folder / kind
        place.mkdir()
        if kind == "sqlite":
            await _replace(flags, place, kind, verdict, "")
            continue
        with postgresql.server() as url:
            await _replace(flags, place, kind, verdict, postgresql.database(url))
    return verdict


@dataclass
class Trial:
    """What is asked and pushed meanwhile."""

    place: Kitchens
    url: str
    answers: Counter[str] = field(default_factory=Counter)
    pushed: list[str] = field(default_factory=list)
    """Tags that were acknowledged."""
    again: int = 0
    """Pushes that were tried again: no control plane ran."""
    turns: int = 0
    over: bool = False

    def has_pushed(self, least: int) -> bool:
        return len(self.pushed) >= least

    async def ask(self) -> None:
        while not self.over:
            try:
                await call(f"{self.url}/cook")
                self.answers["answered"] += 1
            except (Refused, aiohttp.ClientError, TimeoutError, OSError) as error:
                self.answers[repr(error)[:80]] += 1
            await asyncio.sleep(PACE_S)

    async def push(self) -> None:
        """One bento after another, and each becomes a revision of `turning`."""
        laptop, number = self.place.laptop, 0
        while not self.over:
            number += 1
            tag = await laptop.build(f"pushed-{number}", KITCHEN)
            while tag not in self.pushed and not self.over:
                try:
                    await laptop.bentoml("push", tag)
                    self.pushed.append(tag)
                except AssertionError:
                    self.again += 1

    async def turn(self) -> None:
        """A revision with the last bento, by whichever control plane runs; until it serves."""
        self.turns += 1
        envs = [{"name": "TURN", "value": str(self.turns)}]
        body = {"bento": "kitchen:v1", "services": {"Kitchen": service_settings()}, "envs": envs}
        await self.place.rough.call("PUT", "/api/v2/deployments/turning", body)
        await self.place.rough.settled("turning", "running", "scaled-to-zero")


async def _replace(
    flags: argparse.Namespace, folder: Path, kind: str, verdict: Verdict, database: str
) -> None:
    async with kitchens(folder, database=database) as place:
        url = await place.deploy("steady", slots=CALLERS, **AWAKE)
        await place.deploy("turning")
        platform = place.platform
        pid = platform.pid(ROLE)
        argv = _command_of(pid)
        platform.kill()  # its roles go on, and are ours now
        trial = Trial(place, url)
        asking = [asyncio.create_task(trial.ask()) for _ in range(CALLERS)]
        pushing = asyncio.create_task(trial.push())
        running: subprocess.Popen[bytes] | None = None
        try:
            for step, python in enumerate([str(flags.old), argv[0], str(flags.old)], 1):
                await _stop(pid)
                log = folder / f"control-plane-{step}.log"
                running = _started([python, *argv[1:]], log)
                pid = running.pid
                await until(platform.healthy)
                await trial.turn()
                await until(partial(trial.has_pushed, len(trial.pushed) + flags.pushes), PUSHED_S)
                for what in tracebacks(log.read_text())[:1]:
                    verdict.broken.append(f"{kind}, step {step}: the log has a traceback: {what}")
        finally:
            trial.over = True
            await asyncio.gather(*asking, pushing)
            await _check(trial, kind, verdict)
            if running is not None:
                running.kill()


async def _check(trial: Trial, kind: str, verdict: Verdict) -> None:
    failed = {what: n for what, n in trial.answers.items() if what != "answered"}
    verdict.figures[f"{kind}: requests answered, failed"] = [
        trial.answers["answered"],
        sum(failed.values()),
    ]
    verdict.figures[f"{kind}: pushes, tried again"] = [len(trial.pushed), trial.again]
    verdict.figures[f"{kind}: roll-outs"] = trial.turns
    verdict.expect(not failed, f"{kind}: requests failed: {failed}")
    listed = await trial.place.rough.call("GET", "/api/v1/bentos?start=0&count=1000")
    states = {
        f"{item['repository']['name']}:{item['version']}": item["upload_status"]
        for item in listed["items"]
    }
    lost = [tag for tag in trial.pushed if states.get(tag) != "success"]
    verdict.expect(not lost, f"{kind}: acknowledged pushes are not there: {lost}")
    replicas = (await trial.place.platform.ask("steady"))["live"]["replicas"]
    verdict.expect(len(replicas) == 1, f"{kind}: 'steady' has {len(replicas)} replicas, and not 1")


def _command_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]


def _started(argv: list[str], log: Path) -> subprocess.Popen[bytes]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("BENTO", "PYTHON"))}
    with log.open("ab") as output:
        return subprocess.Popen(argv, env=environ, stdout=output, stderr=output)


async def _stop(pid: int) -> None:
    os.kill(pid, 15)

    def gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    await until(gone)
