"""What the platform costs while nobody asks for anything."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from pathlib import Path

import pytest

from hotplate.platform.settings import PlatformSettings
from tests.support.end_to_end.platform_process import Platform, running
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.memory import memory_bytes
from tests.support.processor import cpu_s
from tests.support.services.bentos import SLEEPY

pytestmark = [pytest.mark.client, pytest.mark.one_machine("it starts platforms of its own")]

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
    data, unused_files_s = tmp_path / "data", PlatformSettings().unused_files_s
    standby = "mode = 'off'"
    async with running(data, platform, standby=standby, unused_files_s=unused_files_s) as alone:
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
        assert sum(map(memory_bytes, pids)) < MEMORY_BYTES


async def spent_s(pids: Collection[int]) -> float:
    before = sum(map(cpu_s, pids))
    await asyncio.sleep(WATCHED_S)
    return sum(map(cpu_s, pids)) - before


def has_view(platform: Platform) -> bool:
    return os.path.ismount((platform.data / "agent" / "view").resolve())
