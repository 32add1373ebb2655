"""What deployments did and took, as the API tells it, with real replicas."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from hotplate.deploy.phases import unix_now
from tests.support.end_to_end.platform_process import Platform
from tests.support.end_to_end.rough_client import RoughClient
from tests.support.patience import until
from tests.support.services.calling import call

pytestmark = pytest.mark.client

ONE = {"scaling": {"min_replicas": 1, "max_replicas": 1}}
BUSY_S = 0.4


def total(column: list[float | None]) -> float:
    return sum(value or 0 for value in column)


@pytest.mark.one_machine("control groups of replicas are read on their machine only")
async def test_what_a_deployment_does_is_in_its_series_at_once_and_adds_up(
    platform: Platform, rough: RoughClient, kitchen: str
) -> None:
    begun = unix_now()
    path = "/api/v1/hotplate/deployments/seen"
    async with rough.deployed("seen", kitchen, Kitchen=ONE) as url:

        async def series(**asked: Any) -> Any:
            query = "&".join(f"{name}={value}" for name, value in asked.items())
            return await rough.call("GET", f"{path}/series?from={begun}&{query}")

        answered = [call(f"{url}/cook", seconds=BUSY_S) for _ in range(3)]
        await asyncio.gather(*answered)
        ended = unix_now()

        async def counted() -> bool:
            return total((await series())["requests"]) == 3

        await until(counted)
        assert unix_now() - ended < 10, "long before it is written"
        found = await series()
        assert total(found["errors"]) == total(found["refused"]) == 0
        assert max(value or 0 for value in found["in_flight"]) >= 1
        assert total(found["cold_starts"]) == 1
        assert 3 * BUSY_S * 0.9 <= total(found["replica_s"]["busy"]) <= ended - begun
        slowest = max(value or 0 for value in found["answer_s"]["p99"])
        assert slowest >= BUSY_S * 0.8, "as exactly as buckets are"
        rates = (await rough.call("GET", path))["rates"]
        assert rates["requests_per_s"] == pytest.approx(0.3, abs=0.31)

        (replica,) = await platform.replicas("seen")
        lived_s = unix_now() - _unix(replica["created_at"])
        found = await series(step=60)
        parts_s = sum(total(column) for column in found["replica_s"].values())
        assert parts_s == pytest.approx(lived_s, rel=0.05, abs=0.5)

        assert (await series(version="main"))["requests"] == (await series())["requests"]
        assert set(found["gpu_share"]) == {None}
        everything = await rough.call("GET", f"/api/v1/hotplate/series?from={begun}")
        assert total(everything["requests"]) >= 3
    costs = await rough.call("GET", f"/api/v1/hotplate/costs?from={begun}&by=deployment")
    (mine,) = [item for item in costs["items"] if item["deployment"] == "seen"]
    assert mine["requests"] == 3
    assert parts_s <= sum(mine["replica_s"].values()) <= unix_now() - begun


def _unix(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
