"""Ctrl-C, and the next `hotplate up` on the same data."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from tests.scenarios.bentos import KITCHEN
from tests.scenarios.calling import call
from tests.scenarios.laptop import Laptop
from tests.scenarios.platform_process import Platform, running, until

pytestmark = [pytest.mark.client, pytest.mark.timeout(60)]


async def test_ctrl_c_ends_everything_and_the_next_up_serves_the_same(
    platform: Platform, kitchen: str, tmp_path: Path
) -> None:
    async with running(tmp_path / "data", environments_of=platform) as platform:
        laptop = Laptop(tmp_path)
        await laptop.login(platform)
        await laptop.deploy("lasting", await laptop.build("kitchen", KITCHEN))
        url = await platform.url_of("lasting")
        asked = asyncio.create_task(call(f"{url}/cook", seconds=2.0))
        await until(lambda: in_flight(platform), 10)
        ports = [int(url.rpartition(":")[2]), platform.port, *platform.noted("ports").values()]
        assert all(map(listens, ports))

        assert await platform.stop() == 0
        assert (await asked)["version"] == "v1"
        assert platform.processes() == []
        assert not any(map(listens, ports))

        await platform.start()
        assert await platform.url_of("lasting") == url
        assert await call(f"{url}/echo", text="back") == "back"
        assert await platform.stop() == 0


async def in_flight(platform: Platform) -> int:
    (service,) = (await platform.ask("lasting"))["live"]["services"]
    count: int = service["in_flight"]
    return count


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
