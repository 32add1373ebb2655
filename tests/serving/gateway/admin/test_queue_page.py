from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest
from prometheus_client import generate_latest

from hotplate.serving.gateway.admin.metrics import registry_of
from hotplate.serving.gateway.admin.queue_page import describe
from tests.support.gateway.backends import Connection, Request
from tests.support.gateway.callers import Caller
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until

TIMEOUT: Final = "X_Request_Timeout_Seconds"
SERVICE_S = 0.05


async def sleepy(request: Request, connection: Connection) -> None:
    await asyncio.sleep(SERVICE_S)
    connection.answer()


async def teach(kitchen: Kitchen) -> None:
    """Has the gateway learn how long `/sleepy` takes."""
    kitchen.backend.on("/sleepy", sleepy)
    caller = await kitchen.caller()
    for _ in range(10):
        assert (await caller.ask("/sleepy")).status == 200


async def waiting(kitchen: Kitchen, count: int, **headers: Any) -> list[Caller]:
    """So many callers of `/sleepy`, one after the other, behind what waits already."""
    callers = []
    queue = kitchen.server.queue
    for _ in range(count):
        caller = await kitchen.caller()
        before = queue.queued
        caller.send("/sleepy", **headers)
        await until(lambda: queue.queued == before + 1)  # noqa: B023
        callers.append(caller)
    return callers


async def occupy(kitchen: Kitchen) -> None:
    """Takes the only slot, until the backend's gate is opened."""
    await kitchen.send("/slow")
    await until(lambda: kitchen.backend.running == 1)


async def test_a_caller_may_have_less_time_than_the_route_gives(kitchen: Kitchen) -> None:
    await kitchen.wake()
    await occupy(kitchen)
    answer = await kitchen.ask("/x", **{TIMEOUT: "0.1"})
    assert (answer.status, answer.error["code"]) == (504, "deadline_exceeded")
    assert "0.1 s" in answer.error["message"]
    await kitchen.serve(timeout_s=0.1)
    assert (await kitchen.ask("/x", **{TIMEOUT: "1e3"})).status == 504, "but not more"


@pytest.mark.parametrize("value", ["soon", "0", "-1", "nan", "inf", "1_0", "1, 2", "1s"])
async def test_a_time_that_is_none_is_refused_in_a_sentence(kitchen: Kitchen, value: str) -> None:
    await kitchen.wake()
    caller = await kitchen.caller()
    answer = await caller.ask("/x", **{TIMEOUT: value})
    assert (answer.status, answer.error["code"]) == (400, "bad_timeout")
    assert value in answer.error["message"]
    assert (await caller.ask("/x")).status == 200, "the connection goes on"


async def test_a_caller_s_own_time_starts_when_a_replica_is_ready(kitchen: Kitchen) -> None:
    caller = await kitchen.send("/x", x_request_timeout_seconds="0.2")
    await asyncio.sleep(0.3)
    await kitchen.wake()
    assert (await caller.answer()).status == 200


async def test_who_cannot_be_in_time_is_told_at_once_when_to_come_again(kitchen: Kitchen) -> None:
    await kitchen.serve(priority_header=True)
    await kitchen.wake()
    await teach(kitchen)
    await occupy(kitchen)
    await waiting(kitchen, 40)
    caller = await kitchen.caller()
    answer = await caller.ask("/sleepy", priority="u=7", **{TIMEOUT: "1"})
    assert (answer.status, answer.error["code"]) == (503, "no_capacity")
    mean_s = kitchen.server.queue.service.mean_s  # about 0.05 s, and more on a busy machine
    assert int(answer.headers["retry-after"]) == pytest.approx(40 * mean_s, abs=1.0)
    said = kitchen.gateway.report().routes[kitchen.route.name]
    assert (said.refused, said.refusals) == (1, {"no_capacity": 1})


async def test_how_slow_a_body_comes_says_nothing_of_how_long_requests_take(
    kitchen: Kitchen,
) -> None:
    await kitchen.wake(2)
    caller = await kitchen.caller()
    caller.send_raw(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nsl")
    queue = kitchen.server.queue
    await until(lambda: queue.in_flight == 1)
    [replica] = queue.replicas
    await asyncio.sleep(0.2)
    body_received_at = asyncio.get_running_loop().time()
    caller.send_raw(b"owly")
    assert (await caller.answer()).body == b"slowly"
    await until(lambda: not replica.taken)
    assert queue.service.seen == 1
    assert queue.service.mean_s <= asyncio.get_running_loop().time() - body_received_at


async def test_organizations_take_turns_and_urgent_requests_go_first(kitchen: Kitchen) -> None:
    weights = (("acme", 1.0),)
    await kitchen.serve(organization_header="X-Organization", priority_header=True, weights=weights)
    await kitchen.wake()
    await occupy(kitchen)
    sent: list[tuple[str, dict[str, Any]]] = [
        ("/a1", {"x_organization": "acme"}),
        ("/a2", {"x_organization": "acme"}),
        ("/a3", {"X_ORGANIZATION": "acme", "priority": "u=0, i"}),
        ("/b1", {"x_organization": "other one"}),
        ("/c1", {}),
    ]
    for target, headers in sent:
        before = kitchen.server.queue.queued
        await kitchen.send(target, **headers)
        await until(lambda: kitchen.server.queue.queued == before + 1)  # noqa: B023
    text = generate_latest(registry_of(lambda: kitchen.gateway.servers)).decode()
    gauge = "hotplate_gateway_organization_queued_requests"
    assert f'{gauge}{{organization="acme",route="acme/echo"}} 3.0' in text
    assert f'{gauge}{{organization="other",route="acme/echo"}} 2.0' in text
    kitchen.backend.gate.set()
    await until(lambda: len(kitchen.backend.requests) == 6)
    order = [request.target for request in kitchen.backend.requests[1:]]
    assert order == ["/a3", "/b1", "/c1", "/a1", "/a2"]
    assert kitchen.backend.requests[1].headers["x-organization"] == "acme", "it is passed on"


async def test_what_callers_say_of_their_priority_counts_only_where_the_route_says_so(
    kitchen: Kitchen,
) -> None:
    await kitchen.wake()
    await occupy(kitchen)
    for target, priority in (("/usual", "u=3"), ("/urgent", "u=0")):
        before = kitchen.server.queue.queued
        await kitchen.send(target, priority=priority)
        await until(lambda: kitchen.server.queue.queued == before + 1)  # noqa: B023
    kitchen.backend.gate.set()
    await until(lambda: len(kitchen.backend.requests) == 3)
    assert [request.target for request in kitchen.backend.requests[1:]] == ["/usual", "/urgent"]
    assert kitchen.backend.requests[2].headers["priority"] == "u=0", "it is passed on"


async def test_a_full_queue_takes_a_place_from_who_has_most(
    kitchen: Kitchen, caplog: pytest.LogCaptureFixture
) -> None:
    await kitchen.serve(organization_header="x-organization", queue_limit=2)
    await kitchen.wake()
    await occupy(kitchen)
    greedy = await waiting(kitchen, 2, x_organization="greedy")
    answer = await kitchen.ask("/x", x_organization="greedy")
    assert (answer.status, answer.error["code"]) == (429, "share_full")
    assert "organization 'greedy'" in answer.error["message"]
    small = await kitchen.send("/x", x_organization="small")
    answer = await greedy[1].answer()
    assert (answer.status, answer.error["code"]) == (429, "share_full")
    assert int(answer.headers["retry-after"]) >= 1
    assert kitchen.server.counters.pushed_out == 1
    (said,) = caplog.messages
    assert "its share of them; come back later. Refused since the last such line: 1" in said
    kitchen.backend.gate.set()
    assert (await small.answer()).status == 200


async def test_the_queue_s_page_tells_who_waits_and_when_each_will_start(kitchen: Kitchen) -> None:
    loop = asyncio.get_running_loop()

    def page() -> dict[str, object]:
        return describe(kitchen.route.name, "", kitchen.server.queue, loop.time())

    await kitchen.serve(organization_header="x-organization", priority_header=True)
    held = await kitchen.send("/x")
    await until(lambda: kitchen.server.queue.queued == 1)
    assert (page()["estimated_start_s"], page()["slots"]) == (None, 0)
    await kitchen.wake()
    await held.answer()
    await teach(kitchen)
    assert page()["estimated_start_s"] == 0.0
    await occupy(kitchen)
    await waiting(kitchen, 3, x_organization="acme", priority="u=5")
    shown = page()
    assert (shown["queued"], shown["in_flight"], shown["slots"]) == (3, 1, 1)
    assert shown["organizations"] == {
        "acme": {"queued": 3, "in_flight": 0, "weight": 1.0},
        "": {"queued": 0, "in_flight": 1, "weight": 1.0},
    }
    rows = shown["waiting"]
    assert isinstance(rows, list)
    assert [(row["organization"], row["priority"]) for row in rows] == [("acme", 5)] * 3
    starts = [row["estimated_start_s"] for row in rows]
    assert starts[2] - starts[0] == pytest.approx(2 * SERVICE_S, rel=0.5)
    assert 59 < rows[0]["deadline_s"] < 60
    await kitchen.sleep()
    later = page()["estimated_start_s"]
    assert later is not None, "from the first start, which it has seen"
