"""How many requests a replica has at a time where nobody says, and where a label does."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.rough_client import RoughClient
from tests.support.patience import until
from tests.support.services.calling import call
from tests.support.services.shapes import most_at_once

pytestmark = pytest.mark.client

NAME = "free"


async def test_a_label_frees_and_fixes_the_number_of_slots_and_all_pages_say_so(
    platform: AnyPlatform, rough: RoughClient, kitchen: str
) -> None:
    async with rough.deployed(NAME, kitchen) as url:
        assert await most(url) == 1
        assert await slots(platform) == {"number": 1, "source": "set"}

        await labelled(rough, kitchen, "auto")
        await until(lambda: has(platform, {"number": 32, "source": "learnt"}))
        assert await most(url) == 30
        said = "32 slots, learnt (async methods; the label hotplate/concurrency is auto)"
        assert said in await platform.status(NAME)
        assert f"service 'Kitchen': {said}" in await platform.hotplate("events", NAME)

        await labelled(rough, kitchen, "2")
        await until(lambda: has(platform, {"number": 2, "source": "label"}))
        assert await most(url) == 2
        replicas = await platform.replicas(NAME)
        assert [replica["revision"] for replica in replicas] == [1], "without a new one"


async def labelled(rough: RoughClient, kitchen: str, concurrency: str) -> None:
    labels = [{"key": "hotplate/concurrency", "value": concurrency}]
    body = {"bento": kitchen, "services": {}, "labels": labels}
    await rough.call("PUT", f"/api/v2/deployments/{NAME}", body)


async def slots(platform: AnyPlatform) -> object:
    (replica,) = await platform.replicas(NAME)
    return replica["slots"]


async def has(platform: AnyPlatform, expected: object) -> bool:
    return await slots(platform) == expected


async def most(url: str) -> int:
    """How many of 30 calls at once its handlers ran at once."""
    answers = await asyncio.gather(*(call(f"{url}/cook", seconds=0.3) for _ in range(30)))
    return most_at_once(answers)
