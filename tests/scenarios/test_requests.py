"""What callers of a deployment see: streams, waking, and slots that tell the truth."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import aiohttp
import pytest

from tests.scenarios.calling import call
from tests.scenarios.laptop import Laptop, deployed
from tests.scenarios.platform_process import Platform

pytestmark = [pytest.mark.client, pytest.mark.timeout(60)]

SLEEPY = {"min_replicas": 0, "max_replicas": 1, "policy": {"scale_down_stabilization_window": 2}}
NAME = "asked"


@pytest.fixture(scope="module")
def url(platform: Platform, laptop: Laptop, kitchen: str) -> Iterator[str]:
    """A deployment with one slot that sleeps after two seconds."""
    deployment = deployed(platform, laptop, kitchen, NAME, Kitchen={"scaling": SLEEPY})
    with asyncio.Runner() as runner:
        yield runner.run(deployment.__aenter__())
        runner.run(deployment.__aexit__(None, None, None))


async def test_a_streamed_answer_arrives_in_pieces(url: str) -> None:
    now = asyncio.get_running_loop().time
    arrived = []
    asked = {"pieces": 4, "pause_s": 0.3}
    async with aiohttp.ClientSession() as http, http.post(f"{url}/stream", json=asked) as answer:
        async for line in answer.content:
            arrived.append((now(), line.decode().strip()))
    assert [line for _, line in arrived] == [f"piece {number}" for number in range(4)]
    assert arrived[-1][0] - arrived[0][0] > 0.6


@pytest.mark.parametrize("api", ["cook", "block"], ids=["in a task", "in a thread"])
async def test_a_caller_who_leaves_does_not_free_the_slot(url: str, api: str) -> None:
    """The next request waits until the handler has ended, though nobody wants its answer."""
    warm = await call(f"{url}/cook")
    with suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            await call(f"{url}/{api}", seconds=1.5)
    after = await call(f"{url}/cook")
    assert after["pid"] == warm["pid"]
    assert after["began"] - warm["ended"] > 1.4
    assert after["most"] == 1


async def test_readyz_wakes_a_deployment_and_waits_for_it(platform: Platform, url: str) -> None:
    await platform.asleep(NAME)
    async with aiohttp.ClientSession() as http, http.get(f"{url}/readyz") as answer:
        assert answer.status == 200
    assert len(await platform.replicas(NAME, "ready")) == 1


async def test_the_schema_is_there_without_a_replica(platform: Platform, url: str) -> None:
    await platform.asleep(NAME)
    async with aiohttp.ClientSession() as http, http.get(f"{url}/schema.json") as answer:
        assert answer.status == 200
        schema = await answer.json()
    assert schema["name"] == "Kitchen"
    assert {"/cook", "/stream"} <= {route["route"] for route in schema["routes"]}
    assert await platform.replicas(NAME) == []


async def test_the_python_client_wakes_a_deployment(
    platform: Platform, laptop: Laptop, url: str
) -> None:
    await platform.asleep(NAME)
    program = f"""
import bentoml
with bentoml.SyncHTTPClient({url!r}) as client:
    print(client.echo(text="awake"))
"""
    assert (await laptop.python(program)).splitlines()[-1] == "awake"
