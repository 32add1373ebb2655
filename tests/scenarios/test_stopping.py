"""Ctrl-C, and the next `hotplate up` on the same data."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from tests.support.end_to_end.platform_process import Platform, running
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.patience import until
from tests.support.services.calling import Tasks, call
from tests.support.services.shapes import Shapes

pytestmark = [pytest.mark.client, pytest.mark.one_machine("it starts platforms of its own")]


async def test_ctrl_c_ends_everything_and_the_next_up_serves_the_same(
    platform: Platform, bento: Bento, shapes: Shapes, tmp_path: Path
) -> None:
    toiling = Bento.read(shapes.laptop.home / "bentos" / "tasks" / "v1")
    async with running(tmp_path / "data", environments_of=platform) as platform:
        async with RoughClient(platform) as rough:
            await rough.deploy("lasting", await rough.push(bento))
            await rough.deploy("toiler", await rough.push(toiling))
            await rough.settled("lasting", "running")
            await rough.settled("toiler", "running")
        url = await platform.url_of("lasting")
        toil = Tasks(f"{await platform.url_of('toiler')}/toil")
        done = await toil.submit(seconds=0)
        await toil.reached(done, "completed")
        result = await toil.result(done)
        asked = asyncio.create_task(call(f"{url}/cook", seconds=2.0))
        runs, waits = await toil.submit(seconds=1.5), await toil.submit(seconds=0)
        await toil.reached(runs, "in_progress")
        await until(lambda: platform.in_flight("lasting"))
        ports = [int(url.rpartition(":")[2]), platform.port, *platform.noted("ports").values()]
        assert all(map(listens, ports))

        assert await platform.stop() == 0
        assert (await asked)["version"] == "v1"
        assert platform.leftovers() == []
        assert not any(map(listens, ports))

        await platform.start()
        assert await platform.url_of("lasting") == url
        assert await call(f"{url}/echo", text="back") == "back"
        assert await toil.result(done) == result
        for task_id in (runs, waits):
            await toil.reached(task_id, "completed")
        assert (
            (await toil.result(runs))["pid"] == result["pid"] != (await toil.result(waits))["pid"]
        )
        assert await platform.stop() == 0


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
