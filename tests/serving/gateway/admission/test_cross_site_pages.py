"""What a browser sends to a deployment for a page of another origin, and under another name."""

from __future__ import annotations

import base64
import os

import pytest

from hotplate.serving.gateway.protocol.cors_rules import Cors
from tests.support.gateway.kitchen import Kitchen

EVIL = "https://evil.example"
CROSS = {"Sec_Fetch_Site": "cross-site"}
LINK = {**CROSS, "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
TEXT = {"Content_Type": "text/plain"}


def upgrade(**headers: str) -> dict[str, str]:
    key = base64.b64encode(os.urandom(16)).decode()
    return {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Key": key,
        **headers,
    }


@pytest.mark.parametrize(
    "page",
    [
        {"Origin": EVIL, **CROSS},
        {"Origin": EVIL},
        {"Origin": "null"},
        {"Origin": "http://model.test:7101", "Sec_Fetch_Site": "same-site"},
        CROSS,
        {**LINK, "Origin": "null"},
    ],
)
async def test_another_origins_page_runs_nothing(kitchen: Kitchen, page: dict[str, str]) -> None:
    await kitchen.wake()
    caller = await kitchen.caller()
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "GET"):
        answer = await caller.ask("/cook", method=method, body=b"{}", **TEXT, **page)
        assert (answer.status, answer.error["code"]) == (403, "cross_site"), method
    assert answer.error["message"].startswith("acme/echo: A page of another origin (")
    assert kitchen.backend.finished == 0


async def test_a_foreign_websocket_is_refused_and_an_own_one_goes_on(kitchen: Kitchen) -> None:
    await kitchen.wake()
    foreign = await (await kitchen.caller()).ask("/cook", **upgrade(Origin=EVIL))
    assert (foreign.status, foreign.error["code"]) == (403, "cross_site")
    assert kitchen.backend.finished == 0
    own = await (await kitchen.caller()).ask("/cook", **upgrade(Origin="http://model.test"))
    assert own.status == 200


async def test_own_pages_links_and_programs_are_served(kitchen: Kitchen) -> None:
    await kitchen.wake()
    caller = await kitchen.caller()
    for page in (
        {},
        {"Origin": "http://model.test", "Sec_Fetch_Site": "same-origin"},
        {"Origin": "https://model.test"},
        {"Sec_Fetch_Site": "none"},
    ):
        assert (await caller.ask("/cook", method="POST", body=b"{}", **page)).status == 200, page
    assert (await caller.ask("/cook", **LINK)).status == 200
    assert (await caller.ask("/cook", method="POST", body=b"{}", **LINK)).status == 403


async def test_the_services_cors_allows_others(kitchen: Kitchen) -> None:
    await kitchen.wake()
    await kitchen.serve(cors=Cors(allow_origins=("http://page.test",)))
    caller = await kitchen.caller()
    for origin, status in (("http://page.test", 200), ("http://other.test", 403), ("null", 403)):
        page = {"Origin": origin, **CROSS}
        assert (await caller.ask("/cook", method="POST", body=b"", **page)).status == status
    assert (await caller.ask("/cook", **CROSS)).status == 403, "it does not say whose it is"
    await kitchen.serve(cors=Cors(allow_origins=("*",)))
    for page in ({"Origin": EVIL, **CROSS}, CROSS):
        assert (await caller.ask("/cook", method="POST", body=b"", **page)).status == 200


async def test_a_browser_that_was_led_here_by_another_name_is_refused(kitchen: Kitchen) -> None:
    await kitchen.wake()
    kitchen.limit(hosts=())
    page = {"Origin": "http://model.test", "Sec_Fetch_Site": "same-origin"}
    answer = await kitchen.ask("/cook", method="POST", body=b"{}", **page)
    assert (answer.status, answer.error["code"]) == (421, "misdirected_request")
    assert kitchen.backend.finished == 0
    assert (await kitchen.ask("/cook")).status == 200, (
        "programs call it by whatever name leads here"
    )


async def test_a_page_neither_wakes_a_deployment_nor_waits(kitchen: Kitchen) -> None:
    answer = await kitchen.ask("/cook", method="POST", body=b"{}", Origin=EVIL)
    assert answer.status == 403
    demand = kitchen.server.demand()
    assert (demand.in_flight, demand.queued) == (0, 0)
