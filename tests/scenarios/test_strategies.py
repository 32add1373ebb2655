"""Each strategy under load, with real replicas: nothing fails, and its bounds hold all the time."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import aiohttp
import pytest

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.replica_watch import watched
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.end_to_end.worse_answers import FAILING, STOPPED_S, stopped_after_s
from tests.support.patience import until
from tests.support.services.bentos import KITCHEN
from tests.support.services.calling import under_load

pytestmark = pytest.mark.client

WANTED = 2
CALLERS, PACE_S = 10, 0.2
"""Together 50 requests/s."""
MOST = {"RollingUpdate": WANTED + math.ceil(WANTED / 4), "RampedSlowRollout": WANTED + 1}
"""Replicas that there are at most; of other strategies as many as are wanted."""


def body(tag: str, strategy: str, *labels: tuple[str, str]) -> dict[str, Any]:
    return {
        "bento": tag,
        "labels": [{"key": key, "value": value} for key, value in labels],
        "services": {
            "Kitchen": {
                "scaling": {"min_replicas": WANTED, "max_replicas": WANTED},
                "deployment_strategy": strategy,
                "config_overrides": {"traffic": {"concurrency": 16}},
            }
        },
    }


async def streamed(url: str) -> str:
    fields = {"pieces": 30, "pause_s": 0.1}
    async with aiohttp.ClientSession() as http, http.post(f"{url}/stream", json=fields) as answer:
        assert answer.status == 200
        return await answer.text()


async def over(platform: AnyPlatform, name: str, revision: int) -> None:
    """That revision alone has replicas."""

    async def alone() -> bool:
        return {each["revision"] for each in await platform.replicas(name)} == {revision}

    await until(alone)


@pytest.mark.parametrize(
    "strategy",
    [
        "Recreate",
        "RollingUpdate",
        "RampedSlowRollout",
        "BestEffortControlledRollout",
    ],
)
async def test_nothing_fails_and_the_bounds_hold(
    platform: AnyPlatform, rough: RoughClient, bento: Bento, strategy: str
) -> None:
    second = bento.changed("kitchen-next", {"src/service.py": KITCHEN.replace('"v1"', '"v2"')})
    successor = await rough.push(second)
    name = f"by-{strategy.lower()}"
    quick = ("hotplate/ramp-s", "1"), ("hotplate/auto-rollback", "false")
    await rough.call("POST", "/api/v2/deployments", {"name": name, **body(bento.tag, "Recreate")})
    try:
        await until(lambda: ready(platform, name, WANTED))
        url = await platform.url_of(name)
        async with under_load(CALLERS, f"{url}/cook", seconds=PACE_S) as load:
            stream = asyncio.create_task(streamed(url))
            async with watched(platform, name) as watch:
                change = body(successor, strategy, *quick)
                await rough.call("PUT", f"/api/v2/deployments/{name}", change)
                await over(platform, name, 2)
            text = await stream
            before = len(load.answers)
            await until(lambda: len(load.answers) > before + CALLERS + 5)
        assert load.failures == []
        assert text.splitlines()[-1] == "piece 29"
        assert {answer["version"] for answer in load.answers[before + CALLERS :]} == {"v2"}
        seen = watch.seen
        assert watch.most <= MOST.get(strategy, WANTED), seen
        if strategy in MOST:
            assert watch.fewest_ready >= WANTED, seen
            assert any({(1, "ready"), (2, "ready")} <= set(there) for there in seen), seen
        if strategy == "Recreate":
            assert all(len({revision for revision, _ in there}) < 2 for there in seen), seen
    finally:
        await platform.delete(name)


async def test_a_revision_that_fails_half_of_its_answers_is_stopped(
    platform: AnyPlatform, rough: RoughClient, bento: Bento
) -> None:
    failing = await rough.push(bento.changed("kitchen-failing", {"src/service.py": FAILING}))
    first = {"name": "worse", **body(bento.tag, "RampedSlowRollout")}
    await rough.call("POST", "/api/v2/deployments", first)
    try:
        await until(lambda: ready(platform, "worse", WANTED))
        url = await platform.url_of("worse")

        async def stopped() -> bool:
            return bool((await platform.ask("worse"))["status"] == "failed")

        async with under_load(CALLERS, f"{url}/cook", seconds=PACE_S) as load:
            await rough.call("PUT", "/api/v2/deployments/worse", body(failing, "RampedSlowRollout"))
            assert await stopped_after_s(load, stopped) <= STOPPED_S
        page = await platform.ask("worse")
        assert "answers failed" in page["reason"]
        assert "revision 1 keeps serving" in page["reason"]
        shown = await platform.ask("worse", "/rollout")
        assert shown["phase"] == "stopped"
        answers = next(v["answers"] for v in shown["versions"] if v["revision"] == 2)
        assert 20 <= sum(answers.values()) < 200
        kinds = [event["kind"] for event in await platform.ask("worse", "/events")]
        assert "RolloutStopped" in kinds
        await over(platform, "worse", 1)
        assert await ready(platform, "worse", WANTED)
    finally:
        await platform.delete("worse")


async def ready(platform: AnyPlatform, name: str, count: int) -> bool:
    return len(await platform.replicas(name, "ready")) == count
