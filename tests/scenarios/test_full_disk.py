"""The whole platform on a disk that fills up: what serves goes on, what is refused says why."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform, running
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.patience import until
from tests.support.services.calling import call, under_load
from tests.support.small_disk import MIB, fill, small_disk

pytestmark = [pytest.mark.client, pytest.mark.one_machine("it starts platforms of its own")]

ROLES = ("up", "agent", "gateway", "control-plane")
SAVE = """
import bentoml, os
with bentoml.models.create("heavy:v1") as model:
    with open(model.path_of("weights.bin"), "wb") as file:
        file.write(os.urandom(8 << 20))
"""


async def test_a_full_disk_refuses_uploads_in_a_sentence_and_fails_no_request(
    platform: Platform, bento: Bento, tmp_path: Path
) -> None:
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk", 200 * MIB) as disk:
        async with running(disk / "data", environments_of=platform) as mine:
            laptop = await Laptop.at(tmp_path / "home", mine)
            await laptop.python(SAVE)
            async with RoughClient(mine) as rough:
                awake = {"min_replicas": 1, "max_replicas": 1}
                await rough.deploy("kitchen", await rough.push(bento), Kitchen={"scaling": awake})
                await rough.settled("kitchen", "running")
            url = await mine.url_of("kitchen")
            pids = [mine.pid(role) for role in ROLES]
            filler = fill(disk, left_bytes=2 * MIB)

            async def told(command: str) -> bool:
                return "free some space" in await mine.hotplate(command)

            async with under_load(2, f"{url}/cook", seconds=0.1) as load:
                refused = await laptop.bentoml("models", "push", "heavy:v1", fails=True)
                assert "is full" in refused
                assert "free some space" in refused
                await until(partial(told, "status"))
                await until(partial(told, "events"))
                fill(disk / "data")  # the last bytes, too
                assert await mine.healthy()
                (disk / "data" / "filler").unlink()
                filler.unlink()
                await laptop.bentoml("models", "push", "heavy:v1")
            assert load.failures == []
            assert len(load.answers) > 10
            assert await call(f"{url}/echo", text="on") == "on"
            (replica,) = await mine.replicas("kitchen", "ready")
            assert replica["restarts"] == 0
            assert [mine.pid(role) for role in ROLES] == pids
