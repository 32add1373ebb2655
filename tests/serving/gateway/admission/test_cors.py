"""Pages of other origins: preflights and the gateway's own answers, by the service's rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotplate.serving.gateway.protocol.cors_rules import Cors
from hotplate.serving.gateway.protocol.routes import Route, RouteTable
from tests.support.gateway.kitchen import Kitchen

PAGE = "http://page.test"
RULES = Cors(
    allow_origins=(PAGE,),
    allow_methods=("POST",),
    allow_headers=("X-Mine", "Authorization"),
    expose_headers=("X-Model",),
    max_age_s=60,
)
ASKED = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "x-mine"}


@pytest.fixture
async def asleep(kitchen: Kitchen) -> Kitchen:
    """A closed route without a replica."""
    await kitchen.serve(cors=RULES, token_digests=("",))
    return kitchen


async def test_a_preflight_is_answered_without_a_token_and_without_waking(asleep: Kitchen) -> None:
    caller = await asleep.caller()
    answer = await caller.ask("/cook", method="OPTIONS", Origin=PAGE, **ASKED)
    assert answer.status == 200
    allowed = {k: v for k, v in answer.headers.items() if k.startswith("access-control")}
    assert allowed == {
        "access-control-allow-origin": PAGE,
        "access-control-allow-methods": "post",
        "access-control-allow-headers": "accept, accept-language, authorization, "
        "content-language, content-type, x-mine",
        "access-control-max-age": "60",
    }
    demand = asleep.server.demand()
    assert (demand.in_flight, demand.queued, demand.completed) == (0, 0, 0)


@pytest.mark.parametrize(
    ("origin", "asked", "refused"),
    [
        ("http://other.test", ASKED, "origin"),
        (PAGE, {**ASKED, "Access_Control_Request_Method": "PUT"}, "method"),
        (PAGE, {**ASKED, "Access_Control_Request_Headers": "x-other"}, "headers"),
    ],
)
async def test_a_preflight_says_what_is_not_allowed(
    asleep: Kitchen, origin: str, asked: dict[str, str], refused: str
) -> None:
    caller = await asleep.caller()
    answer = await caller.ask("/cook", method="OPTIONS", Origin=origin, **asked)
    assert answer.status == 400
    assert f"Disallowed CORS {refused}".encode() in answer.body
    allowed = answer.headers.get("access-control-allow-origin")
    assert allowed == (None if refused == "origin" else PAGE)


async def test_a_page_can_read_why_it_was_refused(asleep: Kitchen) -> None:
    caller = await asleep.caller()
    answer = await caller.ask("/cook", method="POST", body=b"{}", Origin=PAGE)
    assert (answer.status, answer.error["code"]) == (401, "unauthorized")
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.headers["vary"] == "origin"
    exposed = answer.headers["access-control-expose-headers"]
    assert exposed == "x-model, retry-after, x-request-id"


async def test_another_origins_page_and_no_page_are_told_nothing_of_it(asleep: Kitchen) -> None:
    caller = await asleep.caller()
    for headers, status in (({"Origin": "http://other.test"}, 403), ({}, 401)):
        answer = await caller.ask("/cook", method="POST", body=b"{}", **headers)
        assert answer.status == status
        assert "access-control-allow-origin" not in answer.headers


async def test_where_only_replicas_know_the_rules_a_preflight_is_theirs_to_answer(
    kitchen: Kitchen,
) -> None:
    await kitchen.wake()
    await kitchen.serve(cors_in_replica=True)
    caller = await kitchen.caller()
    answer = await caller.ask("/cook", method="OPTIONS", Origin=PAGE, **ASKED)
    assert answer.body == b"ok /cook"


async def test_every_origin_and_field_may_be_allowed(kitchen: Kitchen) -> None:
    rules = Cors(allow_origins=("*",), allow_methods=("*",), allow_headers=("*",))
    await kitchen.serve(cors=rules)
    caller = await kitchen.caller()
    answer = await caller.ask("/cook", method="OPTIONS", Origin=PAGE, **ASKED)
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["access-control-allow-headers"] == "x-mine"
    await kitchen.serve(cors=replace(rules, allow_credentials=True))
    answer = await caller.ask("/cook", method="OPTIONS", Origin=PAGE, **ASKED)
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.headers["access-control-allow-credentials"] == "true"


def test_the_rules_travel_in_the_route_table() -> None:
    route = Route("acme/echo", "127.0.0.1", 7100, cors=RULES, tasks=("/job",))
    table = RouteTable(1, (route,))
    assert RouteTable.from_json(table.to_json()) == table
