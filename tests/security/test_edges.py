"""What a web page in an operator's browser gets, and a replica that asks the platform's own ports
and looks for where its gateways meet."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
from yarl import URL

from tests.security.evil import attack
from tests.security.grounds import Grounds

PAGE = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
NEIGHBOUR = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}
TEXT = {"Content-Type": "text/plain"}
TOKEN = "X-YATAI-API-TOKEN"
BODY = json.dumps({"name": "ann"})
MEETING = """
import os
try:
    answer = sorted(os.listdir({path!r}))
except OSError as error:
    answer = error.strerror
"""
ADMIN = """
import json, urllib.error, urllib.request
def ask(path):
    try:
        with urllib.request.urlopen({url!r} + path) as said:
            return [said.status, json.loads(said.read())]
    except urllib.error.HTTPError as error:
        return [error.code, None]
answer = [ask(path) for path in ("/healthz", "/metrics", "/deployments/default/victim/queue")]
"""


async def asked(method: str, url: str | URL, **headers: str) -> tuple[int, str]:
    data = BODY if method == "POST" else None
    async with aiohttp.request(method, url, data=data, headers=TEXT | headers) as answer:
        return answer.status, await answer.text()


async def ports_of(field: Grounds) -> Any:
    return field.platform.noted("ports")


class TestAPage:
    async def test_of_another_site_calls_no_deployment(self, field: Grounds) -> None:
        for page in (PAGE, {"Origin": "null"}, {**NEIGHBOUR, "Origin": field.evil}):
            status, said = await asked("POST", f"{field.victim}/greet", **page)
            assert (status, "cross_site" in said) == (403, True)
        status, _ = await asked("POST", f"{field.victim}/greet")
        assert status == 200, "a program may"

    async def test_of_a_name_that_was_made_to_lead_here_reads_nothing(self, field: Grounds) -> None:
        own = {"Host": "evil.example", "Origin": "http://evil.example"}
        status, _ = await asked("POST", f"{field.victim}/greet", **own)
        assert status == 421
        ports = await ports_of(field)
        for url in (
            f"{field.platform.url}/metrics",
            f"{field.platform.url}/",
            f"http://127.0.0.1:{ports['gateway']}/metrics",
            f"http://127.0.0.1:{ports['agent']}/v1/status",
        ):
            assert (await asked("GET", url, Host="evil.example"))[0] == 421, url
            assert (await asked("GET", url, **PAGE))[0] == 403, url
            assert (await asked("POST", url, **PAGE))[0] == 403, url

    async def test_calls_it_where_nobody_asks_whose_it_is(self, field: Grounds) -> None:
        with field.without("origin"):
            for page in (PAGE, {"Host": "evil.example", "Origin": "http://evil.example"}):
                assert (await asked("POST", f"{field.victim}/greet", **page))[0] == 200


class TestTheApi:
    async def test_is_not_there_without_its_token(self, field: Grounds) -> None:
        paths = ("/api/v1/auth/current", "//api/v1/auth/current", "/%61pi/v1/auth/current")
        for path in (*paths, "/./api/v1/auth/current", "/api/v1/auth/current?token=scenario"):
            url = URL(f"{field.platform.url}{path}", encoded=True)
            for wrong in ({}, {"Authorization": "Bearer scenario"}, {TOKEN: ""}, {TOKEN: "other"}):
                assert (await asked("GET", url, **wrong))[0] in (400, 401, 404), (path, wrong)
        status, _ = await asked("GET", f"{field.platform.url}{paths[0]}", **{TOKEN: "scenario"})
        assert status == 200

    async def test_has_no_gateways_doors_for_its_own_token(self, field: Grounds) -> None:
        doors = ("GET gateway", "GET tasks/line", "POST docs", "POST shutdown")
        for method, _, path in (door.partition(" ") for door in doors):
            for right in ({TOKEN: "scenario"}, {"Authorization": "Bearer scenario"}, {}):
                url = f"{field.platform.url}/internal/{path}"
                status, _ = await asked(method, url, **right)
                assert status in (401, 404), (path, right)


class TestAReplica:
    async def test_learns_nothing_from_the_gateways_port(self, field: Grounds) -> None:
        url = f"http://127.0.0.1:{(await ports_of(field))['gateway']}"
        answers = await attack(field.evil, ADMIN.format(url=url))
        assert answers == [[200, {"status": "ok"}], [401, None], [401, None]]

    async def test_does_not_find_where_gateways_meet(self, field: Grounds) -> None:
        path = str(field.platform.data.parent / ".local/state/hotplate/gateways")
        found = await attack(field.evil, MEETING.format(path=path))
        assert found in ([], "No such file or directory", "Permission denied")

    async def test_finds_it_without_walls(self, open_field: Grounds) -> None:
        path = str(open_field.platform.data.parent / ".local/state/hotplate/gateways")
        found = await attack(open_field.evil, MEETING.format(path=path))
        assert "starting" in found
