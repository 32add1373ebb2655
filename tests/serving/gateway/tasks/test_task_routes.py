"""Which calls of tasks are taken, and what of a deployment is answered without waking it."""

from __future__ import annotations

import asyncio
import json

import pytest

from hotplate.serving.gateway.protocol.headers import REPLICA_KEY
from tests.serving.gateway.tasks.task_hall import Hall
from tests.serving.gateway.tasks.task_keeper import Kept
from tests.support.patience import until


async def test_a_full_queue_takes_no_task_more(hall: Hall) -> None:
    await hall.kitchen.serve(queue_limit=2)
    await hall.submit()
    await hall.submit()
    await until(lambda: hall.kitchen.server.demand().queued == 2)
    answer = await hall.ask("submit", method="POST", body=b"{}")
    assert (answer.status, answer.error["code"]) == (429, "share_full")
    assert len(hall.keeper.tasks) == 2
    hall.keeper.tasks["a2"] = Kept(b"POST /job HTTP/1.1\r\nHost: a\r\n", b"")
    await hall.keeper.offer("a2", "acme/echo")  # as after a restart: it waits outside
    await hall.kitchen.wake()
    await hall.ended("a2")
    assert hall.kitchen.backend.finished == 3


async def test_a_terminated_deployments_results_are_told_and_its_tasks_wait(hall: Hall) -> None:
    task_id = await hall.submit()
    await until(lambda: hall.kitchen.server.demand().queued == 1)
    await hall.kitchen.serve(refuse="it is terminated")
    assert hall.kitchen.server.demand().queued == 0
    assert (await hall.ask("submit", method="POST", body=b"{}")).status == 503
    assert (await hall.ask(f"status?task_id={task_id}")).status == 200
    await hall.kitchen.serve(refuse="")
    await hall.kitchen.wake()
    await hall.ended(task_id)


async def test_a_submission_over_the_limit_or_cut_off_is_no_task(hall: Hall) -> None:
    await hall.kitchen.serve(body_limit_bytes=100_000)
    caller = await hall.kitchen.caller()
    caller.send_raw(
        b"POST /job/submit HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"186a0\r\n" + bytes(100_000) + b"\r\n1\r\na\r\n0\r\n\r\n"
    )
    assert (await caller.answer()).status == 413
    other = await hall.kitchen.caller()
    other.send_raw(b"POST /job/submit HTTP/1.1\r\nHost: a\r\nContent-Length: 90000\r\n\r\n")
    other.send_raw(bytes(80_000))
    await asyncio.sleep(0.1)
    other.leave()
    await asyncio.sleep(0.1)
    assert hall.keeper.tasks == {}


async def test_an_id_of_any_length_is_looked_up(hall: Hall) -> None:
    for length in (32, 9000, 15_000):
        answer = await hall.ask(f"status?task_id={'a' * length}")
        assert answer.status == 200, length  # as the keeper answers, which knows no ids


async def test_every_task_route_needs_the_token(hall: Hall) -> None:
    await hall.kitchen.serve(token_digests=("0" * 64,))
    for method, verb in (
        ("POST", "submit"),
        ("GET", "status"),
        ("GET", "get"),
        ("PUT", "cancel"),
        ("POST", "retry"),
    ):
        answer = await hall.ask(f"{verb}?task_id=1", method=method, body=b"")
        assert answer.status == 401, verb
    assert hall.keeper.tasks == {}
    assert hall.keeper.calls == []


@pytest.mark.parametrize("prefix", ["", "/v1"])
async def test_the_documents_of_a_sleeping_deployment_are_told_without_waking_it(
    hall: Hall, prefix: str
) -> None:
    path = f"{prefix}/docs.json"
    await hall.kitchen.serve(ready_path=f"{prefix}/readyz")
    answer = await hall.kitchen.ask(path)
    assert (answer.status, answer.body) == (200, json.dumps({"docs": path}).encode())
    assert hall.kitchen.server.demand().completed == 0
    await hall.kitchen.wake()
    assert (await hall.kitchen.ask(path)).body == f"ok {path}".encode()


async def test_documents_that_only_a_replica_knows_wake_one(hall: Hall) -> None:
    hall.keeper.away = True
    caller = await hall.kitchen.caller()
    caller.send("/docs.json")
    await until(lambda: hall.kitchen.server.demand().queued == 1)
    await hall.kitchen.wake()
    assert (await caller.answer()).body == b"ok /docs.json"
    await hall.kitchen.serve(refuse="it is terminated")
    assert (await hall.kitchen.ask("/docs.json")).status == 503


async def test_a_response_of_the_control_plane_without_its_length_is_an_error(hall: Hall) -> None:
    hall.keeper.chunked = True
    answer = await hall.ask("status?task_id=1")
    assert (answer.status, answer.error["code"]) == (503, "tasks_away")


async def test_a_fault_at_a_call_of_a_task_is_answered(hall: Hall) -> None:
    await hall.client.close()
    answer = await hall.ask("status?task_id=1")
    assert (answer.status, answer.error["code"]) == (503, "tasks_away")
    assert "the gateway failed at this call" in answer.error["message"]


async def test_a_replica_s_key_is_not_kept_with_its_task(hall: Hall) -> None:
    await hall.kitchen.wake()
    for sent, kept in ((f"Bearer {REPLICA_KEY}a.b", False), ("Bearer mine", True)):
        task = await hall.submit(authorization=sent)
        await hall.ended(task)
        assert (sent.encode() in hall.kept(task).head) is kept
