"""A second gateway beside the platform's own: one slot is one slot, whichever of them is killed."""

from __future__ import annotations

import itertools
import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hotplate.serving.gateway.fleet.members import rendezvous_owner
from tests.support.end_to_end.platform_process import Platform
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.gateway.gateway_processes import GatewayProcess
from tests.support.patience import until
from tests.support.services.calling import under_load

pytestmark = pytest.mark.one_machine("it looks at the platform's processes")

CALLERS = 16
"""Each connection is one gateway's by chance: that none has any must not happen."""
BACK_S = 5.0
"""It takes a tenth of that."""


async def health_of(platform: Platform) -> Any:
    """What the platform's own gateway says of itself."""
    url = f"http://127.0.0.1:{platform.noted('ports')['gateway']}/healthz"
    token = (platform.data / "cluster-token").read_text().strip()
    shown = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=shown) as http, http.get(url) as answer:
        return await answer.json()


async def test_a_killed_gateway_costs_its_callers_connections_and_a_replaced_one_nothing(
    platform: Platform, rough: RoughClient, bento: Bento, tmp_path: Path
) -> None:
    flags = [
        f"--control-plane={platform.url}",
        f"--token-file={platform.data / 'cluster-token'}",
        f"--state={tmp_path / 'state'}",
    ]
    async with GatewayProcess.start(tmp_path, *flags) as second:
        _, mine = await second.admin("/healthz")
        theirs = await health_of(platform)
        assert mine["peers"] == [theirs["gateway"]]
        ids = [mine["gateway"], theirs["gateway"]]
        names = (f"shared-{number}" for number in itertools.count(1))
        name = next(n for n in names if rendezvous_owner(f"default/{n}", ids) == theirs["gateway"])
        await rough.deploy(name, bento.tag)
        await rough.settled(name, "running")
        url = await platform.url_of(name)

        async def owned() -> Any:
            return (await health_of(platform))["owners"].get(f"default/{name}") == ids[1]

        await until(owned)
        async with under_load(CALLERS, f"{url}/cook", seconds=0.1) as load:
            await until(lambda: answered(load.answers, 3))
            os.kill(platform.pid("gateway"), signal.SIGKILL)
            killed_at = datetime.now(UTC).timestamp()
            await until(lambda: answered(load.answers, 8, since=killed_at))
        after = [answer["ended"] for answer in load.answers if answer["ended"] > killed_at]
        assert min(after) - killed_at < BACK_S
        assert {answer["most"] for answer in load.answers} == {1}
        assert 0 < len(load.failures) <= CALLERS, "only what the killed one had"
        events = await platform.hotplate("events")
        assert f"gateway {ids[0]} has joined" in events
        assert f"gateway {ids[1]} has gone, and 1 still serve" in events
        await until(platform.healthy)
        await another_version_cuts_nothing(platform, url)
        await platform.delete(name)


async def another_version_cuts_nothing(platform: Platform, url: str) -> None:
    before = platform.pid("gateway")

    async def replaced() -> Any:
        return platform.pid("gateway") != before

    async with under_load(CALLERS, f"{url}/cook", seconds=0.1) as load:
        os.kill(before, signal.SIGUSR2)
        await until(replaced)
        answers = len(load.answers)
        await until(lambda: answered(load.answers, answers + 5))
    assert load.failures == []
    assert {answer["most"] for answer in load.answers} == {1}
    assert f"the gateway is process {platform.pid('gateway')} now" in await platform.hotplate(
        "events"
    )


async def answered(answers: list[Any], count: int, since: float = 0.0) -> Any:
    return sum(answer["began"] > since for answer in answers) >= count
