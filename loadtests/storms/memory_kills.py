"""The kernel kills each process for its memory: gateway, control plane, agent and a replica.

The process is moved into a memory control group of its own whose limit is below what it uses, and
is asked until the kernel has killed it (the group's own count of kills says so). `up` starts it
again, or the control plane does; only who was connected to what died may have noticed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from contextlib import suppress
from pathlib import Path

import aiohttp

from hotplate.cache.client import AgentClient
from hotplate.cache.errors import CacheError
from loadtests.harness.inspection import children_of, leader_of
from loadtests.harness.verdict import Verdict
from loadtests.systems.faulted_platform import FaultedPlatform, faulted_platform
from loadtests.systems.memory_groups import memory_group
from tests.support.memory import memory_bytes
from tests.support.patience import until
from tests.support.services.calling import Refused, call

LIMIT_BYTES = 64 << 10
PRESSURE_BYTES = 16 << 20
KILLED_S = 60.0
VICTIMS = ("gateway", "control-plane", "agent", "replica")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=2, help="of one kill of each process (2)")


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    verdict = Verdict()
    async with faulted_platform(folder, verdict) as trial:
        for number in range(flags.rounds):
            for victim in VICTIMS:
                await _kill(trial, victim, f"{victim}, kill {number + 1}")
    return verdict


async def _kill(trial: FaultedPlatform, victim: str, what: str) -> None:
    platform = trial.platform
    pid = await _process(trial, victim)
    with memory_group(f"hotplate-storm-{os.getpid()}", LIMIT_BYTES) as group:
        async with trial.asked(what, silent=True):
            group.take(pid)
            pressing = asyncio.create_task(_press(trial, victim))
            with suppress(TimeoutError):
                await until(lambda: group.kills > 0, KILLED_S)
            killed = group.kills
            pressing.cancel()
            await asyncio.gather(pressing, return_exceptions=True)
    trial.verdict.figures[f"{what}: killed by the kernel"] = killed
    trial.verdict.expect(killed > 0, f"{what}: the kernel killed nothing in {KILLED_S:g} s")
    await trial.recovered(what, [victim])
    if victim == "replica":
        ready = await platform.replicas("steady", "ready")
        trial.verdict.expect(bool(ready), f"{what}: there is no ready replica")
    else:
        trial.verdict.expect(platform.pid(victim) != pid, f"{what}: it was not started again")


async def _process(trial: FaultedPlatform, victim: str) -> int:
    """Of a replica, the process that has most memory: it has a launcher, too."""
    if victim != "replica":
        return trial.platform.pid(victim)

    async def leader() -> int | None:
        ready = await trial.platform.replicas("steady", "ready")
        return leader_of(trial.platform, ready[0]["id"]) if ready else None

    pid = await until(leader)
    assert pid is not None
    family = [pid]
    for one in family:
        family += children_of(one)
    return max(family, key=memory_bytes)


async def _press(trial: FaultedPlatform, victim: str) -> None:
    """Asks for what takes fresh memory: who only repeats what was done before has it already."""
    platform = trial.platform
    file = platform.shared / "large"
    file.write_bytes(bytes(PRESSURE_BYTES))
    token = (platform.data / "cluster-token").read_text().strip()
    agent = AgentClient(f"http://127.0.0.1:{platform.noted('ports')['agent']}", token)
    try:
        while True:
            with suppress(CacheError, Refused, aiohttp.ClientError, TimeoutError):
                if victim == "agent":
                    await agent.pull(f"file://{file}")
                else:
                    url = await platform.url_of("steady")
                    await call(f"{url}/echo", text="x" * PRESSURE_BYTES)
            await asyncio.sleep(0.2)
    finally:
        await agent.close()
