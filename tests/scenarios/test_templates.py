"""Replicas are forked from what one has imported, which callers and operators see by its speed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from hotplate.deploy.sandbox.isolation import Isolation
from tests.support.end_to_end.cold_start import ColdStart
from tests.support.end_to_end.platform_process import Platform, running
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.patience import until
from tests.support.services.bentos import SLEEPY
from tests.support.services.calling import call, process_of

pytestmark = [
    pytest.mark.skipif(
        bool(Isolation([Path("/nothing")]).forks_refused),
        reason="walls cannot be put up around forks",
    ),
    pytest.mark.one_machine("it starts platforms of its own"),
]
NAMES = ("one", "other", "twins")
TWINS = {"config_overrides": {"workers": 2}}


async def pool(platform: Platform) -> dict[str, Any]:
    found: list[dict[str, Any]] = (await platform.page("standby"))["pools"]
    return found[0] if found else {"templates": 0}


async def has_template(platform: Platform) -> bool:
    return bool((await pool(platform))["templates"])


async def test_replicas_are_forked_and_outlive_template_and_control_plane(
    platform: Platform, bento: Bento, tmp_path: Path
) -> None:
    async with running(tmp_path / "data", platform, standby="calm_s = 0.2") as here:
        async with RoughClient(here) as rough:
            tag = await rough.push(bento)
            for name in NAMES:
                several = TWINS if name == "twins" else {}
                await rough.deploy(name, tag, Kitchen={"scaling": SLEEPY, **several})
                await rough.settled(name, "running", "scaled-to-zero")
        urls = [await here.url_of(name) for name in NAMES]
        await until(lambda: has_template(here))
        for name in NAMES:
            await here.asleep(name)
        forks = (await pool(here))["forks"]
        answers = await asyncio.gather(*(call(f"{url}/cook", seconds=0.5) for url in urls))
        kept = await pool(here)
        assert kept["forks"] == forks + 3
        assert len({process_of(answer["pid"]) for answer in answers} - {0}) == 3
        last = (await here.ask(NAMES[0], "/cold_starts?count=1"))[0]
        assert (last["pool"], last["forked"]) == (kept["pool"], True)
        first = (await here.ask(NAMES[0], "/cold_starts"))[-1]
        assert (first["pool"], first["forked"]) == (kept["pool"], False)
        shown = await here.hotplate("standby")
        assert f"its template has forked {forks + 3} replicas" in shown
        assert json.loads(await here.hotplate("standby", "--json"))["pools"][0]["forks"]

        asked = asyncio.create_task(call(f"{urls[0]}/cook", seconds=3.0))
        await asyncio.sleep(0.5)  # it is being answered
        os.kill(here.pid("control-plane"), signal.SIGKILL)
        assert (await asked)["version"] == "v1"
        await until(here.healthy)
        assert (await call(f"{urls[0]}/cook"))["version"] == "v1"
        await here.stop()
        assert here.leftovers() == []


async def test_a_start_that_waits_for_its_template_has_waited_once(
    platform: Platform, bento: Bento, tmp_path: Path
) -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # where one cold start is a crowd already
    try:
        here = running(tmp_path / "data", platform, standby="calm_s = 600")
        async with here as alone, RoughClient(alone) as rough:
            os.sched_setaffinity(0, cores)
            tag = await rough.push(bento)
            for name in (names := NAMES[:2]):
                await rough.deploy(name, tag, Kitchen={"scaling": SLEEPY})
                await rough.settled(name, "running", "scaled-to-zero")
            for name in names:
                await alone.asleep(name)
            urls = [await alone.url_of(name) for name in names]
            await asyncio.gather(*(call(f"{url}/cook") for url in urls))
            starts = [(await alone.ask(name, "/cold_starts?count=1"))[0] for name in names]
    finally:
        os.sched_setaffinity(0, cores)
    forked, cold = sorted(map(ColdStart.of, starts), key=lambda one: one.share_s["process"])
    assert {one["replica"] for one in starts if one["forked"]} == {forked.replica}
    assert forked.share_s["environment"] > 2 * cold.share_s["environment"]
    assert cold.share_s["environment"] < cold.share_s["process"]
