"""Out of descriptors: a replica, agent, gateway and control plane have none left for a while.

The limit of a running process is set to what it has open (prlimit(2)), while idle connections are
opened to it and its callers go on. What cannot be done is told in a typed error where there is a
connection to tell it on; when the limit is as before, the same processes do everything again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from loadtests.harness.inspection import leader_of
from loadtests.harness.verdict import Verdict
from loadtests.systems.faulted_platform import FaultedPlatform, faulted_platform
from tests.support.patience import until

SPARE = 2
"""Descriptors that are left to take: its next connections take them."""
IDLE_CONNECTIONS = 8
PROCESSES = ("replica", "agent", "gateway", "control-plane")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=15.0, help="for which there are none (15)")
    parser.add_argument(
        "--processes", nargs="+", default=PROCESSES, choices=PROCESSES, help="which, in turn"
    )


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    verdict = Verdict()
    async with faulted_platform(folder, verdict) as trial:
        for role in flags.processes:
            await _starve(trial, role, flags.seconds)
    return verdict


async def _starve(trial: FaultedPlatform, role: str, seconds: float) -> None:
    platform = trial.platform
    pid = await _replica(trial) if role == "replica" else platform.pid(role)
    ports = {
        "gateway": urlsplit(await platform.url_of("steady")).port,
        "control-plane": platform.port,
        "agent": platform.noted("ports")["agent"],
    }
    with _starved(pid) as most, ExitStack() as stack:
        if port := ports.get(role):
            for _ in range(IDLE_CONNECTIONS):
                connection = stack.enter_context(socket.socket())
                connection.setblocking(False)
                with suppress(BlockingIOError):
                    connection.connect(("127.0.0.1", port))
        full = 0
        own = ["deployment"] if role == "replica" else []
        async with trial.asked(f"no descriptors: {role}", silent=True, of_service=own):
            for _ in range(int(seconds * 10)):
                full = max(full, len(os.listdir(f"/proc/{pid}/fd")))
                await asyncio.sleep(0.1)
        trial.verdict.figures[f"no descriptors: {role}: limit, most open"] = [most, full]
        # Who looks sees between two accesses: the last one may just have been given back.
        lacked = full >= most - 1
        trial.verdict.expect(lacked, f"{role} had {full} descriptors open of {most}: none lacked")
    await trial.recovered(f"no descriptors: {role}")


@contextmanager
def _starved(pid: int) -> Iterator[int]:
    """Its limit, which is what it has open and hardly more; as before at the end."""
    limits = Path(f"/proc/{pid}/limits").read_text()
    usual = re.search(r"Max open files\s+(\d+)\s+(\d+)", limits)
    assert usual is not None, limits
    most = len(os.listdir(f"/proc/{pid}/fd")) + SPARE
    _limit(pid, most, usual[2])
    try:
        yield most
    finally:
        with suppress(FileNotFoundError):
            _limit(pid, usual[1], usual[2])


def _limit(pid: int, soft: object, hard: object) -> None:
    """As the process's own user: root of a container may not do it for another one."""
    owner = Path(f"/proc/{pid}").stat()
    command = ["prlimit", "--pid", str(pid), f"--nofile={soft}:{hard}"]
    subprocess.run(command, check=True, user=owner.st_uid, group=owner.st_gid, extra_groups=[])


async def _replica(trial: FaultedPlatform) -> int:
    async def leader() -> int | None:
        ready = await trial.platform.replicas("steady", "ready")
        return leader_of(trial.platform, ready[0]["id"]) if ready else None

    pid = await until(leader)
    assert pid is not None
    return pid
