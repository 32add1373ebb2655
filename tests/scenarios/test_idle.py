"""What the platform costs while nobody asks for anything."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.scenarios.platform_process import Platform

pytestmark = [pytest.mark.client, pytest.mark.timeout(60)]

SETTLING_S = 1.0
WATCHED_S = 10.0
CORE_SHARE = 0.1
"""The tests' platform looks for unused files every few seconds, and has neighbours; one that is
left alone takes a hundredth of a core (`loadtests/storm.py fleet`)."""
MEMORY_BYTES = 400 << 20


async def test_an_idle_platform_takes_hardly_any_cpu_and_memory(
    platform: Platform, sleeper: str
) -> None:
    await platform.asleep("sleeper")
    await asyncio.sleep(SETTLING_S)
    pids = platform.processes()
    before = sum(map(cpu_s, pids))
    await asyncio.sleep(WATCHED_S)
    used_s = sum(map(cpu_s, pids)) - before
    assert platform.processes() == pids
    assert used_s < CORE_SHARE * WATCHED_S
    assert sum(map(own_bytes, pids)) < MEMORY_BYTES


def cpu_s(pid: int) -> float:
    """CPU time of a process so far; fields utime and stime of proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def own_bytes(pid: int) -> int:
    """Memory of a process; what it shares with others counts in part (Pss of proc(5))."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
