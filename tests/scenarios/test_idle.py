"""What the platform costs while nobody asks for anything."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from pathlib import Path

import pytest

from tests.scenarios.bentos import SLEEPY
from tests.scenarios.platform_process import Platform, running
from tests.scenarios.rough_client import Bento, RoughClient

pytestmark = [pytest.mark.client, pytest.mark.timeout(60)]

SETTLING_S = 1.0
WATCHED_S = 6.0
WINDOWS = 3
CORE_SHARE = 0.01
MEMORY_BYTES = 400 << 20
ROLES = 4
"""`up`, agent, gateway and control plane: the session's platform has awake replicas besides. Where
the agent may mount, the daemon of its view is one more."""


async def test_an_idle_platform_takes_hardly_any_cpu_and_memory(
    platform: Platform, bento: Bento, tmp_path: Path
) -> None:
    async with running(tmp_path / "data", environments_of=platform) as alone:
        async with RoughClient(alone) as rough:
            await rough.deploy("sleeper", await rough.push(bento), Kitchen={"scaling": SLEEPY})
            await rough.settled("sleeper", "running")
        await alone.asleep("sleeper")
        await asyncio.sleep(SETTLING_S)
        pids = alone.processes()
        assert len(pids) == ROLES + has_view(alone)
        # The same work takes a busy machine longer, never less long.
        used_s = min([await spent_s(pids) for _ in range(WINDOWS)])
        assert alone.processes() == pids
        assert used_s < CORE_SHARE * WATCHED_S
        assert sum(map(own_bytes, pids)) < MEMORY_BYTES


async def spent_s(pids: Collection[int]) -> float:
    before = sum(map(cpu_s, pids))
    await asyncio.sleep(WATCHED_S)
    return sum(map(cpu_s, pids)) - before


def has_view(platform: Platform) -> bool:
    return os.path.ismount((platform.data / "agent" / "view").resolve())


def cpu_s(pid: int) -> float:
    """CPU time of a process so far; fields utime and stime of proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def own_bytes(pid: int) -> int:
    """Memory of a process; what it shares with others counts in part (Pss of proc(5))."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
