"""Tasks of a deployment with a canary: each runs on the version of its submission."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import pytest

from hotplate.serving.gateway.protocol.routes import TASKS, RouteTable
from hotplate.serving.gateway.protocol.version_shares import MAIN
from tests.serving.gateway.tasks.task_hall import Hall
from tests.support.gateway.backends import Connection, Request
from tests.support.gateway.canary import SLOTS, Canary
from tests.support.gateway.load import Load
from tests.support.patience import until

FIELD = "hotplate-version"


@pytest.fixture
async def canary(hall: Hall) -> AsyncIterator[Canary]:
    canary = Canary(hall.kitchen)
    await canary.add("next")
    for version, backend in canary.backends.items():

        async def job(request: Request, connection: Connection, by: str = version) -> None:
            connection.answer(by.encode())

        backend.on("/job", job)
    canary.routes["next"] = replace(canary.routes["next"], tasks=("/job",))
    await canary.serve({"next": 50})
    yield canary
    await canary.close()


async def test_a_task_runs_on_its_version_and_its_result_says_which(
    hall: Hall, canary: Canary
) -> None:
    for version in ("next", MAIN, "next"):
        answer = await hall.ask("submit", method="POST", body=b"{}", Hotplate_Version=version)
        assert answer.headers[FIELD] == version
        task_id = json.loads(answer.body)["task_id"]
        assert (await hall.ended(task_id)).endswith(version.encode())
        assert hall.kept(task_id).turn["version"] == ("" if version == MAIN else version)
        for asked in ("next", MAIN):  # whichever version the question meets
            answer = await hall.ask(f"get?task_id={task_id}", Hotplate_Version=asked)
            assert (answer.status, answer.body) == (200, version.encode())
            assert answer.headers[FIELD] == version
    routes = hall.kitchen.gateway.report().routes
    assert routes[canary.routes["next"].name].answers == {"next@1": {"2xx": 2}}
    assert routes[hall.kitchen.route.name].answers == {"main@1": {"2xx": 1}}


async def test_submissions_are_given_to_versions_by_weight(hall: Hall, canary: Canary) -> None:
    for _ in range(20):
        await hall.ended(await hall.submit())
    assert abs(canary.asked["next"] - 10) <= 2
    assert all(params["route"] == hall.kitchen.route.name for _, params in hall.keeper.calls)


async def test_a_task_waits_for_its_version_and_runs_on_main_once_that_is_over(
    hall: Hall, canary: Canary
) -> None:
    await canary.change("next", replicas=())
    task_ids = [await hall.submit(Hotplate_Version="next") for _ in range(3)]
    server = canary.server("next")
    await until(lambda: server.demand().queued == 3)
    assert hall.kitchen.server.demand().demand == 0
    await canary.serve({})
    for task_id in task_ids:
        assert (await hall.ended(task_id)).endswith(b"main")
    assert canary.asked == {MAIN: 3}
    answer = await hall.ask(f"get?task_id={task_ids[0]}")
    assert (answer.body, FIELD in answer.headers) == (b"main", False)


async def test_a_task_that_is_offered_again_goes_to_its_version(hall: Hall, canary: Canary) -> None:
    """As after a restart of the gateway or the control plane."""
    task_id = await hall.submit(Hotplate_Version="next")
    await hall.ended(task_id)
    kept = hall.kept(task_id)
    kept.status, kept.answer = "pending", b""
    await until(lambda: canary.server("next").queue.idle)
    await hall.keeper.offer(task_id, hall.kitchen.route.name)
    await until(lambda: kept.ends == 2)
    assert canary.asked == {"next": 2}
    kept.status, kept.turn = "pending", {**kept.turn, "version": "gone"}
    await hall.keeper.offer(task_id, hall.kitchen.route.name)
    await until(lambda: kept.ends == 3)
    assert canary.asked == {"next": 2, MAIN: 1}


async def test_a_version_may_keep_slots_of_their_own_for_its_tasks(
    hall: Hall, canary: Canary
) -> None:
    await canary.change("next", replicas=(), tasks_apart=True)
    task_id = await hall.submit(Hotplate_Version="next")
    route = canary.routes["next"]
    apart = replace(route, name=route.name + TASKS, replicas=(canary.replica("next"),))
    apart = replace(apart, tasks=(), tasks_apart=False)
    gateway = hall.kitchen.gateway
    table = RouteTable(gateway.version + 1, (hall.kitchen.route, route, apart))
    await gateway.apply(table)
    frame = await hall.ended(task_id)
    assert frame.endswith(b"next") and b"Hotplate-Version: next\r\n" in frame
    assert hall.kitchen.gateway.report().routes[apart.name].answers == {"next@1": {"2xx": 1}}


async def test_the_page_of_a_sleeping_version_is_not_that_of_main(
    hall: Hall, canary: Canary
) -> None:
    """The control plane has the documents of `main` only, so this question wakes the version."""
    await hall.kitchen.serve()  # forgets the canary
    await canary.change("next", replicas=())
    caller = await hall.kitchen.send("/docs.json", Hotplate_Version="next")
    await until(lambda: canary.server("next").queue.queued == 1)
    await canary.change("next", replicas=(canary.replica("next"),))
    assert (await caller.answer()).body == b"ok /docs.json"


async def test_twenty_changes_of_weights_with_streams_and_tasks_under_way_fail_nothing(
    hall: Hall, canary: Canary
) -> None:
    kitchen = hall.kitchen
    streams = [await kitchen.send("/stream", Hotplate_Version=v) for v in ("next", MAIN)]
    for stream in streams:
        assert (await stream.head())[0] == 200
        assert await stream.chunk() == b"piece"
    task_ids = []
    async with Load(kitchen.route.port, 2) as load:
        for number in range(20):
            task_ids.append(await hall.submit())
            await canary.serve({"next": 5.0 * number})
            await until(partial(load.has, load.answered + 10))
        await load.stop()
    assert (load.failures, load.failed) == ([], 0)
    for backend in canary.backends.values():
        backend.gate.set()
    for stream in streams:
        assert [await stream.chunk() for _ in range(2)] == [b"rest", b""]
    results = {(await hall.ended(task_id))[-4:] for task_id in task_ids}
    assert results == {b"main", b"next"}
    assert all(backend.peak <= SLOTS for backend in canary.backends.values())
