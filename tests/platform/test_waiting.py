"""What a control plane answers while another one acts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import pytest
from aiohttp import ClientSession, WSMsgType, WSServerHandshakeError, web
from aiohttp.test_utils import BaseTestServer, TestServer
from prometheus_client import CollectorRegistry

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.web.passing_on import PASSED_BY, PASSED_FROM, PassingOn
from hotplate.platform.api.web.request_metrics import RequestMetrics
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import make_app
from hotplate.platform.errors import CannotStart
from hotplate.platform.leadership.candidate import Candidate, this_process
from hotplate.platform.leadership.election import TERM_S
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Term
from hotplate.platform.waiting import make_waiting_app
from hotplate.serving.gateway.protocol.control_planes import LEADER_FIELD
from tests.support.control_plane.cloud import Cloud
from tests.support.control_plane.controller_fake import FakeController

TOKEN = "of the cluster"
DEPLOYMENTS = "/api/v2/deployments"
SECRETS = "/api/v1/org_secrets"
DATA = Path("/data")


def never_lost(why: str) -> NoReturn:
    raise AssertionError(why)


async def echo(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        if message.data == "end":
            await socket.close(code=4321)
        elif message.type is WSMsgType.TEXT:
            await socket.send_str(message.data * 2)
        else:
            await socket.send_bytes(message.data * 2)
    return socket


async def whence(request: web.Request) -> web.Response:
    return web.json_response([request.remote, request.scheme, request.host])


@dataclass
class Pair:
    """Two control planes on one store: `acting` is logged in at the one that acts."""

    acting: Cloud
    leader: BaseTestServer
    waiting: BaseTestServer
    store: Store

    async def ask(
        self, method: str, path: str, body: object = None, token: str = "", **headers: str
    ) -> tuple[int, object, str]:
        """The waiting one's status, JSON and `Retry-After`."""
        sent = {"X-YATAI-API-TOKEN": token or self.acting.token, **headers}
        async with (
            ClientSession(headers=sent) as http,
            http.request(method, self.waiting.make_url(path), json=body) as answer,
        ):
            return answer.status, await answer.json(), answer.headers.get("Retry-After", "")


@pytest.fixture
async def pair(store: Store, blobs: BlobStore, controller: FakeController) -> AsyncIterator[Pair]:
    settings = ApiSettings(cluster_token=TOKEN)
    app = make_app(store, blobs, controller, settings)
    app.add_routes(
        [web.get("/echo", echo), web.get("/whence", whence), web.get("/counting", counting)]
    )
    async with TestServer(app) as leader, Cloud(leader, store) as acting:
        term = Term(holder="it", url=str(leader.make_url("/")), process="", place="here")
        assert store.leadership.take(Term(), term, TERM_S) == 1
        candidate = Candidate(store.leadership, replace(term, holder="me"), never_lost)
        assert await candidate.look() is None
        passing = PassingOn(lambda: candidate.leader, TOKEN)
        waits = make_waiting_app(
            store,
            settings,
            passing,
            candidate,
            (registry := CollectorRegistry()),
            RequestMetrics(registry),
            metrics_open_to_all=True,
        )
        async with TestServer(waits) as waiting:
            yield Pair(acting, leader, waiting, store)
        await passing.close()
        await candidate.give_up()
        await controller.settled()


async def test_it_answers_what_is_in_the_database_and_passes_on_the_rest(pair: Pair) -> None:
    await pair.acting.push_bento()
    status, said, _ = await pair.ask("GET", "/api/v1/bento_repositories/echo/bentos/v1")
    assert status == 200
    assert isinstance(said, dict)
    assert said["version"] == "v1"
    body = {"name": "s", "content": {"type": "env", "items": [{"key": "K", "value": "v"}]}}
    assert (await pair.ask("POST", SECRETS, body))[0] == 200  # passed on
    status, said, _ = await pair.ask("GET", SECRETS)  # its own
    assert isinstance(said, dict)
    assert [item["name"] for item in said["items"]] == ["s"]
    await pair.acting.deploy("echo")
    theirs = await pair.acting.call("GET", DEPLOYMENTS)
    assert theirs["total"] == 1
    status, said, _ = await pair.ask("GET", DEPLOYMENTS)
    assert isinstance(said, dict)
    assert (status, said["total"]) == (200, 1)
    assert (await pair.ask("GET", "/healthz"))[:2] == (
        200,
        {"status": "ok", "leader": False, "epoch": 1},
    )
    status, said, _ = await pair.ask("GET", "/readyz")
    assert status == 503
    assert "this control plane waits" in str(said)
    assert await pair.acting.call("GET", "/readyz") == {"status": "ok"}


async def test_a_token_that_was_revoked_at_one_is_refused_by_both_at_once(pair: Pair) -> None:
    user = pair.acting.user
    secret = pair.store.tokens.add_token(user, "short")
    for path in (DEPLOYMENTS, SECRETS):
        assert (await pair.ask("GET", path, token=secret))[0] == 200
    (uid,) = [
        one.uid for one in pair.store.tokens.tokens(user.organization.id) if one.name == "short"
    ]
    await pair.acting.call("DELETE", f"/api/v1/api_tokens/{uid}")
    for path in (DEPLOYMENTS, SECRETS):
        assert (await pair.ask("GET", path, token=secret))[0] == 401


async def test_a_websocket_is_passed_on_both_ways_with_its_end(pair: Pair) -> None:
    async with (
        ClientSession() as http,
        http.ws_connect(pair.waiting.make_url("/echo")) as socket,
    ):
        await socket.send_str("ab")
        assert await socket.receive_str() == "abab"
        await socket.send_bytes(b"\0")
        assert await socket.receive_bytes() == b"\0\0"
        await socket.send_str("end")
        assert (await socket.receive()).type is WSMsgType.CLOSE
        assert socket.close_code == 4321
    async with ClientSession() as http:
        with pytest.raises(WSServerHandshakeError) as refused:
            await http.ws_connect(pair.waiting.make_url("/ws/v1/clusters/default/tail"))
        assert refused.value.status == 401  # the acting one's word


async def counting(request: web.Request) -> web.StreamResponse:
    """Server-sent events, of which the first says from where its reader goes on."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    last = int(request.headers.get("Last-Event-ID", "0"))
    for number in range(last + 1, last + 3):
        await response.write(f"id: {number}\ndata: {request.query['topics']}\n\n".encode())
        await asyncio.sleep(0)
    await asyncio.Event().wait()
    return response


async def test_a_stream_is_passed_on_as_it_comes(pair: Pair) -> None:
    headers = {"X-YATAI-API-TOKEN": pair.acting.token, "Last-Event-ID": "7"}
    async with (
        ClientSession(headers=headers) as http,
        http.get(pair.waiting.make_url("/counting?topics=logs:a/b,events")) as answer,
    ):
        assert answer.content_type == "text/event-stream"
        told = await answer.content.readuntil(b"9\ndata: logs:a/b,events\n\n")
        assert told.startswith(b"id: 8\n")


async def test_a_call_is_passed_on_once_and_from_where_it_came(pair: Pair) -> None:
    called = pair.waiting.make_url("/").authority
    assert (await pair.ask("GET", "/whence"))[1] == ["127.0.0.1", "http", called]
    passed = {PASSED_BY: TOKEN, PASSED_FROM: "192.0.2.7"}
    status, said, wait_s = await pair.ask("GET", DEPLOYMENTS, **passed)
    assert (status, wait_s) == (503, "2")
    assert isinstance(said, dict)
    assert said["error"]["code"] == "no_leader"
    async with ClientSession() as http:
        for by, address in ((TOKEN, "192.0.2.7"), ("forged", "127.0.0.1")):
            headers = {**passed, PASSED_BY: by}
            url = pair.leader.make_url("/whence")
            async with http.get(url, headers=headers) as answer:
                assert (await answer.json())[0] == address


async def test_gateways_are_turned_away_to_the_one_that_acts(pair: Pair) -> None:
    for path in ("/internal/gateway", "/internal/tasks/line"):
        assert (await pair.ask("GET", path))[0] == 401
        status, said, _ = await pair.ask("GET", path, Authorization=f"Bearer {TOKEN}")
        assert status == 421
        assert isinstance(said, dict)
        assert said["error"]["code"] == "not_the_leader"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            ClientSession(headers=headers) as http,
            http.get(pair.waiting.make_url(path)) as answer,
        ):
            assert answer.headers[LEADER_FIELD] == str(pair.leader.make_url("/"))


async def test_without_one_that_acts_it_says_so_and_still_answers_what_it_can(pair: Pair) -> None:
    await pair.leader.close()
    status, said, wait_s = await pair.ask("GET", DEPLOYMENTS)
    assert (status, wait_s) == (503, "2")
    assert isinstance(said, dict)
    assert said["error"]["code"] == "no_leader"
    assert (await pair.ask("GET", SECRETS))[0] == 200


async def test_one_with_other_replicas_does_not_wait_beside_one_that_acts(store: Store) -> None:
    theirs = Term(holder="it", url="http://elsewhere:1", process="1 2@boot", place="/data on boot")
    assert store.leadership.take(Term(), theirs, TERM_S) == 1
    candidate = Candidate(store.leadership, this_process("http://here:1", DATA), never_lost)
    assert await candidate.look() is None
    store.leadership.renew(1, TERM_S)
    with pytest.raises(CannotStart, match="at http://elsewhere:1 with the replicas of /data on"):
        await candidate.look()
    await candidate.give_up()


async def test_a_term_is_given_up_to_the_one_that_waits(store: Store) -> None:
    mine = this_process("http://here:1", DATA)
    first = Candidate(store.leadership, mine, never_lost)
    second = Candidate(store.leadership, replace(mine, process="1 0@boot", holder="b"), never_lost)
    assert await first.look() == 1
    assert await second.look() is None
    assert second.leader == "http://here:1"
    await first.give_up()
    assert await second.look() == 2
    assert second.acts
    await second.give_up()
