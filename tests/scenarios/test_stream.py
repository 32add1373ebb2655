"""What a page is told of a running platform, and how soon."""

from __future__ import annotations

import asyncio
from statistics import median
from typing import Any

import aiohttp
import pytest

from tests.support.control_plane.event_stream import EventStream, streaming
from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.laptop import Laptop

pytestmark = [pytest.mark.client, pytest.mark.usefixtures("unharmed")]

SOON_S = 1.0
TRIES = 3


async def in_flight(stream: EventStream, wanted: int) -> None:
    """Until so many requests of the sleeper are being answered."""
    shown: Any = None
    while shown != wanted:
        told = (await stream.until("deployments")).data["items"]
        for one in told:
            if one["name"] == "sleeper":
                shown = sum(service["in_flight"] for service in one["live"]["services"])


async def test_a_request_is_told_within_a_second_and_its_end_too(
    platform: AnyPlatform, sleeper: str
) -> None:
    headers = {"X-YATAI-API-TOKEN": platform.token}
    now = asyncio.get_running_loop().time
    came_s, went_s = [], []
    async with (
        aiohttp.ClientSession(platform.url, headers=headers) as http,
        aiohttp.ClientSession() as caller,
        streaming(http, "deployments") as stream,
    ):
        await caller.post(f"{sleeper}/cook", json={})
        for _ in range(TRIES):
            began = now()
            cooking = asyncio.create_task(caller.post(f"{sleeper}/cook", json={"seconds": 1.5}))
            await in_flight(stream, 1)
            came_s.append(now() - began)
            await cooking
            ended = now()
            await in_flight(stream, 0)
            went_s.append(now() - ended)
    assert median(came_s) < SOON_S, came_s
    assert median(went_s) < SOON_S, went_s


async def test_a_deployment_comes_and_goes_as_its_page_says(
    platform: AnyPlatform, laptop: Laptop, kitchen: str
) -> None:
    headers = {"X-YATAI-API-TOKEN": platform.token}
    topics = "deployment:told,logs:told,events"
    async with (
        aiohttp.ClientSession(platform.url, headers=headers) as http,
        streaming(http, topics) as stream,
    ):
        statuses, kinds, lines = [], set(), 0
        deploying = asyncio.create_task(laptop.deploy("told", kitchen, Kitchen={}))
        while "running" not in statuses or not lines or "RolloutReady" not in kinds:
            told = await stream.next()
            if told.name == "deployment:told" and told.data is not None:
                statuses.append(told.data["status"])
            elif told.name == "logs:told":
                lines += len(told.data["lines"])
            elif told.name == "events":
                kinds |= {one["kind"] for one in told.data["items"] if one["deployment"] == "told"}
        await deploying
        shown = await platform.ask("told")
        assert shown["status"] == "running"
        await platform.delete("told")
        while (await stream.until("deployment:told")).data is not None:
            pass
