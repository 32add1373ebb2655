"""Services of every shape, deployed by the stock client: their answers and their slots."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.patience import until
from tests.support.services.calling import call
from tests.support.services.shapes import Shapes, most_at_once

pytestmark = [pytest.mark.client, pytest.mark.essential]


async def get(url: str, **fields: str) -> Any:
    async with aiohttp.ClientSession() as http, http.get(url, params=fields) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json(content_type=None)


# Several services ----------------------------------------------------------------------------


@pytest.mark.parametrize("api", ["chain", "chain_sync"])
async def test_services_call_each_other_along_a_chain(hall: str, api: str) -> None:
    answer = await call(f"{hall}/{api}", text="hello")
    assert answer["text"] == "HELLO"
    assert answer["pid"] != answer["middle"]


async def test_workers_times_threads_of_a_dependency_are_its_slots(
    hall: str, shapes: Shapes
) -> None:
    answers = await call(f"{hall}/crowd", callers=12, seconds=0.3)
    # Which worker takes a connection is the kernel's choice, so one may have too few calls.
    assert 2 <= most_at_once(answers) <= await shapes.slots("hall", "Back") == 4


async def test_calls_that_wait_together_form_a_batch(hall: str, shapes: Shapes) -> None:
    assert await shapes.slots("hall", "Middle") == 6
    texts = ["a", "bb", "ccc", "dddd", "eeeee"]
    answers = await call(f"{hall}/batch", texts=texts)
    assert [length for length, _ in answers] == [1, 2, 3, 4, 5]
    assert max(size for _, size in answers) > 1


# Slots ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", ["block", "wait"], ids=["sync", "async"])
async def test_no_more_handlers_run_than_there_are_slots(
    hall: str, shapes: Shapes, api: str
) -> None:
    answers = await asyncio.gather(*(call(f"{hall}/{api}", seconds=0.3) for _ in range(6)))
    assert most_at_once(answers) == await shapes.slots("hall", "Hall") == 2


@pytest.mark.parametrize("api", ["events", "lines"], ids=["async generator", "sync generator"])
async def test_a_stream_has_its_slot_until_its_last_piece(hall: str, api: str) -> None:
    streams = await asyncio.gather(*(call(f"{hall}/{api}", pieces=3) for _ in range(4)))
    spans = []
    for stream in streams:
        pieces = [json.loads(line.removeprefix("data: ")) for line in stream.split("\n") if line]
        assert [piece["number"] for piece in pieces] == [0, 1, 2]
        spans.append(pieces[-1])
    assert most_at_once(spans) == 2


async def test_an_event_stream_says_that_it_is_one(hall: str) -> None:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{hall}/events", json={"pieces": 1}) as answer,
    ):
        assert answer.content_type == "text/event-stream"


async def test_a_websocket_has_a_slot_as_long_as_it_is_open(
    hall: str, platform: AnyPlatform
) -> None:
    async with aiohttp.ClientSession() as http:
        sockets = [await http.ws_connect(f"{hall}/mounted/ws") for _ in range(2)]
        for socket in sockets:
            await socket.send_str("hello")
            assert await socket.receive_str() == "HELLO"
        waiting = asyncio.create_task(call(f"{hall}/wait", seconds=0))

        async def full() -> bool:
            (hall,) = [
                one
                for one in (await platform.ask("hall"))["live"]["services"]
                if one["service"] == "Hall"
            ]
            return (hall["in_flight"], hall["queued"]) == (2, 1)

        await until(full)
        assert not waiting.done()
        await sockets.pop().close()
        assert (await waiting)["ended"]
        await sockets.pop().close()

    async def none_left() -> bool:
        return await platform.in_flight("hall", "Hall") == 0

    await until(none_left)


# Mounted applications, prefixes --------------------------------------------------------------


async def test_mounted_applications_answer_and_take_slots(hall: str) -> None:
    answers = await asyncio.gather(*(get(f"{hall}/mounted/hello", seconds="0.3") for _ in range(4)))
    assert {answer["app"] for answer in answers} == {"FastAPI"}
    assert most_at_once(answers) == 2
    async with aiohttp.ClientSession() as http:
        for path, said in (("/plain/any", "plain PUT"), ("/wsgi/any", "wsgi PUT")):
            async with http.put(f"{hall}{path}") as answer:
                assert await answer.text() == said


async def test_a_path_prefix_a_route_and_a_service_elsewhere(
    prefixed: str, platform: AnyPlatform
) -> None:
    token = {"Authorization": f"Bearer {platform.callers_token}"}
    async with aiohttp.ClientSession(headers=token) as http:
        async with http.post(f"{prefixed}/v1/say/hello", json={"name": "you"}) as answer:
            assert await answer.text() == "hello you"
        async with http.post(f"{prefixed}/v1/shout", json={"text": "far"}) as answer:
            assert (await answer.json())["text"] == "FAR"
        for path in ("/readyz", "/v1/readyz"):
            async with http.get(f"{prefixed}{path}") as answer:
                assert answer.status == 200


# Tasks ---------------------------------------------------------------------------------------


async def test_a_task_has_the_slot_until_it_has_ended(
    tasks: str, shapes: Shapes, platform: AnyPlatform
) -> None:
    assert await shapes.slots("tasks", "Tasks") == 1
    ids = [(await call(f"{tasks}/toil/submit", seconds=2.0))["task_id"]]
    second = asyncio.create_task(call(f"{tasks}/toil/submit", seconds=0.2))
    await result(tasks, ids[0], "in_progress")
    await until(lambda: platform.in_flight("tasks", "Tasks"))
    ids.append((await second)["task_id"])
    ended = [await result(tasks, task_id) for task_id in ids]
    assert most_at_once(ended) == 1


async def result(tasks: str, task_id: str, status: str = "completed") -> Any:
    """What a task has answered, once it has."""

    async def reached() -> bool:
        return bool((await get(f"{tasks}/toil/status", task_id=task_id))["status"] == status)

    await until(reached)
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{tasks}/toil/get", params={"task_id": task_id}) as answer,
    ):
        return await answer.json()


async def test_a_task_is_retried_fails_and_is_cancelled_while_it_waits(tasks: str) -> None:
    first = (await call(f"{tasks}/toil/submit", seconds=0))["task_id"]
    before = await result(tasks, first)
    again = (await call(f"{tasks}/toil/retry?task_id={first}"))["task_id"]
    assert (await result(tasks, again))["began"] > before["ended"]
    failed = (await call(f"{tasks}/toil/submit", seconds=0, fails=True))["task_id"]
    assert "error" in await result(tasks, failed, "failed")
    runs = (await call(f"{tasks}/toil/submit", seconds=1))["task_id"]
    await result(tasks, runs, "in_progress")
    waits = (await call(f"{tasks}/toil/submit", seconds=0))["task_id"]
    async with aiohttp.ClientSession() as http:
        async with http.put(f"{tasks}/toil/cancel?task_id={waits}") as answer:
            assert (answer.status, (await answer.json())["status"]) == (200, "canceled")
        async with http.put(f"{tasks}/toil/cancel?task_id={runs}") as answer:
            assert answer.status == 400  # as under `bentoml serve`
            assert "not supported" in await answer.text()
    assert "pid" in await result(tasks, runs)
    assert "canceled" in (await result(tasks, waits, "canceled"))["error"]
