"""Tasks of public routes, which the control plane keeps and the gateway runs."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from hotplate.serving.gateway.protocol.routes import TASKS, RouteTable
from tests.serving.gateway.tasks.task_hall import Hall, gated
from tests.serving.gateway.tasks.task_keeper import Kept
from tests.support.gateway.backends import Connection, Request
from tests.support.patience import until


async def test_a_task_runs_as_a_call_and_its_answer_is_kept_to_the_byte(hall: Hall) -> None:
    async def job(request: Request, connection: Connection) -> None:
        connection.answer(
            b"\xff\x00png", "201 Made", "Content-Type: image/png\r\nSet-Cookie: a=1\r\n"
        )

    hall.kitchen.backend.on("/job", job)
    task_id = await hall.submit(
        b"input",
        Content_Type="text/x",
        X_Yatai_Api_Token="secret",
        X_Own="1",
        Hotplate_Task_Id="mine",
    )
    assert hall.kitchen.server.demand().queued == 1  # it wakes a sleeping deployment
    await hall.kitchen.wake()
    frame = await hall.ended(task_id)
    assert frame[4:] == b"201 Made\r\nContent-Type: image/png\r\nSet-Cookie: a=1\r\n\xff\x00png"
    (request,) = hall.kitchen.backend.requests
    assert (request.method, request.target, request.body) == ("POST", "/job", b"input")
    assert request.headers["content-type"] == "text/x"
    assert request.headers["x-own"] == "1"
    assert request.headers["hotplate-task-id"] == task_id
    assert "x-yatai-api-token" not in request.headers
    answer = await hall.ask(f"get?task_id={task_id}")
    assert (answer.status, answer.body) == (201, b"\xff\x00png")
    assert answer.headers["set-cookie"] == "a=1"


@pytest.mark.parametrize("size_bytes", [0, 200_000, 2_000_000])
async def test_large_inputs_and_answers_pass_through(hall: Hall, size_bytes: int) -> None:
    data = bytes(range(256)) * (size_bytes // 256)

    async def job(request: Request, connection: Connection) -> None:
        connection.answer(request.body)

    hall.kitchen.backend.on("/job", job)
    await hall.kitchen.wake()
    task_id = await hall.submit(data)
    assert (await hall.ended(task_id)).endswith(data)
    answer = await hall.ask(f"get?task_id={task_id}")
    assert answer.body == data
    answer = await hall.ask(f"get?task_id={task_id}", method="POST", body=b"")
    assert answer.status == 200  # is no task's: it goes to the replica
    assert not list(hall.folder.glob("*/*.*"))


async def test_a_chunked_submission_is_told_by_its_length(hall: Hall) -> None:
    await hall.kitchen.wake()
    caller = await hall.kitchen.caller()
    caller.send_raw(
        b"POST /job/submit HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    )
    task_id = json.loads((await caller.answer()).body)["task_id"]
    await hall.ended(task_id)
    (request,) = hall.kitchen.backend.requests
    assert request.body == b"abcde"
    assert "transfer-encoding" not in request.headers


async def test_more_tasks_than_slots_never_run_at_once(hall: Hall) -> None:
    async def job(request: Request, connection: Connection) -> None:
        await asyncio.sleep(0.005)
        connection.answer(b"done")

    hall.kitchen.backend.on("/job", job)
    await hall.kitchen.wake(2)
    ids = [await hall.submit() for _ in range(30)]
    for task_id in ids:
        await hall.ended(task_id)
    assert hall.kitchen.backend.peak == 2
    assert hall.kitchen.backend.finished == 30


async def test_tasks_are_their_organizations_and_as_urgent_as_they_were_submitted(
    hall: Hall,
) -> None:
    await hall.kitchen.serve(organization_header="X-Organization", priority_header=True)
    await hall.submit(x_organization="acme", priority="u=6")
    await hall.submit(x_organization="acme", priority="u=1")
    await hall.submit()
    queue = hall.kitchen.server.queue
    await until(lambda: queue.queued == 3)
    waiting = [(ticket.organization, ticket.priority) for ticket in queue.waiting]
    assert sorted(waiting) == [("", 3), ("acme", 1), ("acme", 6)]
    assert waiting.index(("acme", 1)) < waiting.index(("acme", 6))
    await hall.kitchen.wake()
    await until(lambda: queue.idle)


async def test_the_report_says_which_slots_tasks_have(hall: Hall) -> None:
    """A replica with tasks is not cut when it is replaced."""

    def said() -> tuple[object, object]:
        demand = hall.kitchen.gateway.report().routes["acme/echo"]
        return demand.tasks, demand.busy

    gate = gated(hall.kitchen)
    await hall.kitchen.wake(3)
    caller = await hall.kitchen.caller()
    caller.send("/slow")
    first, second = await hall.submit(), await hall.submit()
    await until(lambda: said() == ({"r1": 2}, {"r1": 3}))
    gate.set()
    await hall.ended(first)
    await hall.ended(second)
    await until(lambda: said() == ({}, {"r1": 1}))


async def test_the_other_calls_are_the_control_planes_and_take_no_slot(hall: Hall) -> None:
    gate = gated(hall.kitchen)
    await hall.kitchen.wake()
    await hall.submit()
    await until(lambda: hall.kitchen.server.demand().in_flight == 1)
    calls = (("GET", "status"), ("GET", "get"), ("PUT", "cancel"), ("POST", "retry"))
    for method, verb in calls:
        assert (await hall.ask(f"{verb}?task_id=7", method=method, body=b"")).status == 200
    assert (await hall.kitchen.ask("/%6aob/%73tatus?task_id=7")).status == 200
    asked = {"route": "acme/echo", "path": "/job", "task_id": "7"}
    assert hall.keeper.calls == [(verb, asked) for _, verb in calls] + [("status", asked)]
    gate.set()


async def test_a_task_has_no_time_limit_and_waits_as_long_as_it_takes(hall: Hall) -> None:
    gate = gated(hall.kitchen)
    await hall.kitchen.serve(timeout_s=0.05, hold_limit_s=0.05)
    first, second = await hall.submit(), await hall.submit()
    await asyncio.sleep(0.15)
    await hall.kitchen.wake()
    await asyncio.sleep(0.15)
    assert hall.kitchen.server.demand().queued == 1
    gate.set()
    await hall.ended(first)
    await hall.ended(second)


async def test_while_the_control_plane_is_away_nothing_is_taken_or_started_and_what_runs_goes_on(
    hall: Hall,
) -> None:
    gate = gated(hall.kitchen)
    await hall.kitchen.wake()
    runs, waits = await hall.submit(), await hall.submit()
    await until(lambda: hall.kept(runs).status == "in_progress")
    hall.keeper.away = True
    answer = await hall.ask("submit", method="POST", body=b"{}")
    assert (answer.status, answer.error["code"]) == (503, "tasks_away")
    assert "retry-after" in answer.headers
    assert (await hall.ask(f"status?task_id={runs}")).status == 503
    gate.set()
    await until(lambda: list(hall.folder.glob("*/*.answer")))  # a restart of the gateway finds it
    assert hall.kept(waits).status == "pending"
    hall.keeper.away = False
    for task_id in (runs, waits):
        assert (await hall.ended(task_id)).endswith(b"done")
    assert hall.kitchen.backend.finished == 2
    await until(lambda: not list(hall.folder.glob("*/*.*")))


async def test_a_result_outlives_its_gateway(hall: Hall) -> None:
    gate = gated(hall.kitchen)
    await hall.kitchen.wake()
    task_id = await hall.submit()
    await until(lambda: hall.kept(task_id).status == "in_progress")
    hall.keeper.away = True
    gate.set()
    await until(lambda: list(hall.folder.glob("*/*.answer")))
    await hall.end()
    hall.keeper.away = False
    await hall.begin()
    assert (await hall.ended(task_id)).endswith(b"done")


async def test_a_waiting_task_starts_again_with_another_gateway(hall: Hall) -> None:
    task_id = await hall.submit()
    await hall.end()
    await hall.kitchen.serve(refuse="between two lives")
    await hall.kitchen.serve(refuse="")
    await hall.begin()
    await until(lambda: hall.kitchen.server.demand().queued == 1)
    await hall.kitchen.wake()
    await hall.ended(task_id)
    assert hall.kitchen.backend.finished == 1


async def test_a_cancelled_task_loses_its_place(hall: Hall) -> None:
    task_id = await hall.submit()
    await until(lambda: hall.kitchen.server.demand().queued == 1)
    hall.kept(task_id).status = "canceled"
    await hall.keeper.drop(task_id)
    await until(lambda: hall.kitchen.server.demand().queued == 0)


async def test_a_task_that_may_not_start_gives_its_slot_back(hall: Hall) -> None:
    task_id = await hall.submit()
    hall.kept(task_id).status = "canceled"
    await hall.kitchen.wake()
    await until(lambda: hall.kitchen.server.demand().demand == 0)
    assert hall.kitchen.backend.finished == 0


async def test_a_task_whose_replica_dies_has_failed_and_is_not_run_again(hall: Hall) -> None:
    gated(hall.kitchen)
    await hall.kitchen.wake()
    task_id = await hall.submit()
    await until(lambda: hall.kitchen.backend.running == 1)
    await hall.kitchen.backend.stop()
    frame = await hall.ended(task_id)
    assert frame[4:].startswith(b"502 Bad Gateway")
    assert "retry it only if that does no harm" in hall.kept(task_id).note
    assert hall.kitchen.server.demand().demand == 0


@pytest.mark.parametrize(
    ("begun", "twice", "runs"),
    [
        pytest.param(b"", False, 2, id="its handler has not begun"),
        pytest.param(b"HTTP/1.1 100 Started\r\n\r\n", False, 1, id="its handler has begun"),
        pytest.param(b"HTTP/1.1 100 Started\r\n\r\n", True, 2, id="it may run twice"),
    ],
)
async def test_a_task_goes_to_another_replica_only_where_nothing_runs_twice(
    hall: Hall, begun: bytes, twice: bool, runs: int
) -> None:
    gate = gated(hall.kitchen, begun)
    backend = hall.kitchen.backend
    from dataclasses import replace

    worker = replace(hall.kitchen.replica(), worker=True)
    await hall.kitchen.serve(replicas=(worker,), may_run_twice=twice)
    task_id = await hall.submit()
    await until(lambda: backend.running == 1)
    await asyncio.sleep(0.05)  # what it said has arrived
    await backend.stop()
    gate.set()
    await backend.start()
    await hall.ended(task_id)
    assert len(backend.requests) == runs


@pytest.mark.parametrize("twice", [True, False])
async def test_what_a_dead_gateway_had_started_runs_again_only_if_it_may(
    hall: Hall, twice: bool
) -> None:
    await hall.kitchen.serve(may_run_twice=twice)
    await hall.kitchen.wake()
    hall.keeper.tasks["a1"] = Kept(b"POST /job HTTP/1.1\r\nHost: a\r\n", b"", "in_progress")
    await hall.keeper.offer("a1", "acme/echo", lost=True)
    if not twice:
        hall.kept("a1").gateway = hall.client.id
    frame = await hall.ended("a1")
    assert frame[4:].startswith(b"200 OK" if twice else b"502 Bad Gateway")
    assert ("ended while it ran" in hall.kept("a1").note) is not twice


async def test_tasks_move_when_they_get_slots_of_their_own_or_lose_them(hall: Hall) -> None:
    kitchen = hall.kitchen

    async def serve(concurrency: int, *, apart: bool) -> None:
        kitchen.route = replace(
            kitchen.route, replicas=(kitchen.replica(concurrency),), tasks_apart=apart
        )
        own = replace(
            kitchen.route,
            name=kitchen.route.name + TASKS,
            port=0,
            replicas=(kitchen.replica(1),),
            tasks=(),
            tasks_apart=False,
        )
        routes = (kitchen.route, own) if apart else (kitchen.route,)
        await kitchen.gateway.apply(RouteTable(kitchen.gateway.version + 1, routes))

    gate = gated(kitchen)
    await serve(8, apart=True)
    ids = [await hall.submit() for _ in range(5)]
    await until(lambda: kitchen.backend.running == 1)
    await serve(2, apart=False)  # one runs yet where it was, and may for long
    await until(lambda: kitchen.backend.running == 3)
    await serve(8, apart=True)
    own = kitchen.gateway.server(kitchen.route.name + TASKS)
    assert own is not None
    await until(lambda: own.queue.queued == 2)
    gate.set()
    for task_id in ids:
        await hall.ended(task_id)
    assert kitchen.backend.peak == 3
    report = kitchen.gateway.report().routes.values()
    assert sum(demand.in_flight + demand.queued for demand in report) == 0


async def test_a_tasks_answer_counts_for_its_replicas_version(hall: Hall) -> None:
    kitchen = hall.kitchen
    statuses = ["500 Oh", "201 Made"]

    async def job(request: Request, connection: Connection) -> None:
        connection.answer(b"", statuses.pop())

    kitchen.backend.on("/job", job)
    await kitchen.serve(replicas=(replace(kitchen.replica(), version="main@7"),))
    for _ in range(2):
        await hall.ended(await hall.submit())
    kitchen.backend.on("/job", kitchen.backend.half)
    kitchen.backend.gate.set()
    await hall.ended(await hall.submit())
    assert kitchen.server.demand().answers == {"main@7": {"2xx": 1, "5xx": 1, "broken": 1}}
