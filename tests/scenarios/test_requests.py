"""What callers of a deployment see: streams, waking, and slots that tell the truth."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from pathlib import Path

import aiohttp
import pytest

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform
from tests.support.patience import until
from tests.support.services.calling import call, process_of

pytestmark = pytest.mark.client

NAME = "sleeper"


@pytest.mark.essential
async def test_a_streamed_answer_arrives_in_pieces(sleeper: str) -> None:
    now = asyncio.get_running_loop().time
    arrived = []
    asked = {"pieces": 4, "pause_s": 0.3}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{sleeper}/stream", json=asked) as answer,
    ):
        async for line in answer.content:
            arrived.append((now(), line.decode().strip()))
    assert [line for _, line in arrived] == [f"piece {number}" for number in range(4)]
    assert arrived[-1][0] - arrived[0][0] > 0.6


@pytest.mark.one_machine("it looks at the platform's processes")
async def test_a_replica_runs_in_the_environment_that_its_bento_asks_for(
    platform: Platform, sleeper: str
) -> None:
    python = program_of(process_of((await call(f"{sleeper}/cook"))["pid"]))
    assert python.is_relative_to(platform.data / "environments")
    (about,) = python.parents[1].glob("lib/python*/site-packages/bentoml-*.dist-info")
    assert about.name == f"bentoml-{version('bentoml')}.dist-info"


def program_of(pid: int) -> Path:
    return Path(Path(f"/proc/{pid}/cmdline").read_text().partition("\0")[0])


@pytest.mark.parametrize("api", ["cook", "block"], ids=["in a task", "in a thread"])
async def test_a_caller_who_leaves_does_not_free_the_slot(
    platform: AnyPlatform, sleeper: str, api: str
) -> None:
    """The next request waits until the handler has ended, though nobody wants its answer."""
    warm = await call(f"{sleeper}/cook")
    left = asyncio.create_task(call(f"{sleeper}/{api}", seconds=1.5))
    await until(lambda: platform.in_flight(NAME))
    left.cancel()
    after = await call(f"{sleeper}/cook")
    assert after["pid"] == warm["pid"]
    assert after["began"] - warm["ended"] > 1.4
    assert after["most"] == 1


async def test_status_says_what_was_refused_and_why(platform: AnyPlatform, sleeper: str) -> None:
    await call(f"{sleeper}/cook")
    hurry = {"X-Request-Timeout-Seconds": "0.2"}
    async with (
        aiohttp.ClientSession(headers=hurry) as http,
        http.post(f"{sleeper}/cook", json={"seconds": 0.5}) as answer,
    ):
        assert answer.status == 504

    async def shown() -> bool:
        said = await platform.status(NAME)
        # What other requests were refused for stands between the two.
        return all(
            words in said
            for words in ("deadline_exceeded (out of time)", "more replicas (scaling.max_replicas)")
        )

    await until(shown)


@pytest.mark.essential
async def test_readyz_wakes_a_deployment_and_waits_for_it(
    platform: AnyPlatform, sleeper: str
) -> None:
    await platform.asleep(NAME)
    known = len(await platform.ask(NAME, "/cold_starts?count=100"))
    async with aiohttp.ClientSession() as http, http.get(f"{sleeper}/readyz") as answer:
        assert answer.status == 200

    async def has_started() -> bool:
        return len(await platform.ask(NAME, "/cold_starts?count=100")) > known

    await until(has_started)


async def test_schema_and_docs_are_there_without_a_replica_as_one_would_tell_them(
    platform: AnyPlatform, sleeper: str
) -> None:
    async def told() -> list[object]:
        async with aiohttp.ClientSession() as http:
            said = []
            for path in ("schema.json", "docs.json"):
                async with http.get(f"{sleeper}/{path}") as answer:
                    assert (answer.status, answer.content_type) == (200, "application/json")
                    said.append(await answer.json())
            return said

    await platform.asleep(NAME)
    schema, docs = await told()
    assert await platform.replicas(NAME) == []
    assert await call(f"{sleeper}/echo", text="awake") == "awake"
    await until(lambda: platform.replicas(NAME, "ready"))
    assert await told() == [schema, docs]


async def test_the_python_client_wakes_a_deployment(
    platform: AnyPlatform, laptop: Laptop, sleeper: str
) -> None:
    await platform.asleep(NAME)
    program = f"""
import bentoml
with bentoml.SyncHTTPClient({sleeper!r}) as client:
    print(client.echo(text="awake"))
"""
    assert (await laptop.python(program)).splitlines()[-1] == "awake"
