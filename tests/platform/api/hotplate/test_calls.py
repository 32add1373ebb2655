"""Calls of deployments through the API, at a server that stands where their gateway does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import ClientPayloadError, ClientResponse, FormData, web
from aiohttp.test_utils import TestServer

from hotplate.platform.controller.planning.addresses import CallTarget
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import MemberRole
from tests.support.control_plane.cloud import Cloud
from tests.support.control_plane.controller_fake import FakeController
from tests.support.patience import PATIENCE_S, until

CALL = "/api/v1/hotplate/deployments/echo/call"


@dataclass
class Deployment:
    """What answers, and what it was asked."""

    target: CallTarget
    asked: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    waiting: int = 0
    """Callers of `/wait`."""
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        self.asked.append((request.method, request.path_qs, dict(request.headers), data))
        match request.path:
            case "/wait":
                return await self._wait()
            case "/stream":
                return await self._stream(request)
            case "/cut":
                await self._stream(request)
                raise ConnectionResetError
            case "/evil":
                headers = {
                    "Set-Cookie": "hotplate_sign_in=mine",
                    "Location": "/api/v1/hotplate/deployments",
                    "WWW-Authenticate": "Basic",
                    "Content-Security-Policy": "script-src *",
                    "Access-Control-Allow-Origin": "*",
                    "Clear-Site-Data": "*",
                    "X-BentoML-Request-ID": "7",
                }
                return web.Response(status=302, headers=headers, text="<script>alert(1)</script>")
        return web.json_response({"said": data.decode(errors="replace")}, status=203)

    async def _wait(self) -> web.Response:
        self.waiting += 1
        try:
            await asyncio.sleep(3600)
        finally:
            self.waiting -= 1
        raise AssertionError

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await self.go_on.wait()
        await response.write(b"data: 2\n\n")
        if request.path == "/cut":
            assert request.transport is not None
            request.transport.abort()
        return response


@pytest.fixture
async def deployment(cloud: Cloud, controller: FakeController) -> AsyncIterator[Deployment]:
    """`echo`, which its gateway has at a host name of its own."""
    await cloud.push_bento()
    await cloud.deploy("echo")
    await controller.settled()
    made = Deployment(CallTarget(""))
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.target = CallTarget(
        f"http://127.0.0.1:{runner.addresses[0][1]}", "echo.example.com", key="the-key"
    )
    controller.target = made.target
    yield made
    made.go_on.set()
    await runner.cleanup()


async def called(cloud: Cloud, **call: Any) -> ClientResponse:
    return await cloud.http.post(CALL, json=call)


async def test_it_is_asked_what_was_described_and_nothing_else(
    cloud: Cloud, deployment: Deployment
) -> None:
    answer = await called(
        cloud,
        method="PUT",
        path="/say?a=%20b",
        headers={"X-Mine": "1", "Authorization": "Bearer theirs"},
        body={"text": "hi"},
        version="v2",
    )
    assert (answer.status, await answer.json()) == (203, {"said": '{"text": "hi"}'})
    assert answer.headers["Hotplate-Deployment"] == "echo"
    ((method, path, headers, data),) = deployment.asked
    assert (method, path, data) == ("PUT", "/say?a=%20b", b'{"text": "hi"}')
    assert headers == {
        "X-Mine": "1",
        "Authorization": "Bearer theirs",
        "Content-Type": "application/json",
        "Hotplate-Version": "v2",
        "Host": "echo.example.com",
        "Content-Length": "14",
        "Connection": "close",
    }
    assert cloud.token not in str(deployment.asked)


async def test_text_is_sent_as_it_is_and_nothing_as_nothing(
    cloud: Cloud, deployment: Deployment
) -> None:
    await called(cloud, path="/a", headers={"content-type": "text/csv"}, body="a,b")
    await called(cloud, method="GET", path="/b")
    (_, _, first, data), (_, _, second, nothing) = deployment.asked
    assert (first["Content-Type"], data) == ("text/csv", b"a,b")
    assert "Content-Type" not in second
    assert nothing == b""


async def test_a_protected_one_is_opened_by_the_platform_s_key(
    cloud: Cloud, deployment: Deployment, controller: FakeController
) -> None:
    body = {"bento": "echo:v1", "access_authorization": True}
    await cloud.call("PUT", "/api/v2/deployments/echo", body)
    await controller.settled()
    await called(cloud, method="GET", path="/", headers={"authorization": "Bearer theirs"})
    ((_, _, headers, _),) = deployment.asked
    assert headers["Authorization"] == "Bearer the-key"
    assert "authorization" not in headers


async def test_a_form_is_sent_on_with_its_files(cloud: Cloud, deployment: Deployment) -> None:
    form = FormData()
    for name, value in (("path", "/look"), ("headers", '{"X-Mine": "1"}'), ("version", "v2")):
        form.add_field(name, value)
    form.add_field("path", "an argument")
    form.add_field("image", b"\x00\xff" * 100_000, filename="a.png", content_type="image/png")
    async with cloud.http.post(CALL, data=form) as answer:
        assert answer.status == 203
    ((method, path, headers, data),) = deployment.asked
    assert (method, path) == ("POST", "/look")
    assert (headers["X-Mine"], headers["Hotplate-Version"]) == ("1", "v2")
    assert headers["Content-Type"].startswith("multipart/form-data; boundary=")
    assert b'name="path"' in data
    assert b"an argument" in data
    assert b'filename="a.png"' in data
    assert b"image/png" in data
    assert b"\x00\xff" * 100_000 in data
    assert b"/look" not in data


async def test_a_field_body_is_the_body_itself(cloud: Cloud, deployment: Deployment) -> None:
    form = FormData({"method": "PUT", "path": "/look"})
    form.add_field("body", b"\x89PNG", filename="a.png", content_type="image/png")
    (await cloud.http.post(CALL, data=form)).close()
    ((method, _, headers, data),) = deployment.asked
    assert (method, headers["Content-Type"], data) == ("PUT", "image/png", b"\x89PNG")
    form = FormData({"path": "/", "headers": '{"Content-Type": "multipart/form-data"}'})
    form.add_field("body", b"an argument", filename="a")
    (await cloud.http.post(CALL, data=form)).close()
    assert b'name="body"' in deployment.asked[-1][3]


@pytest.mark.parametrize(
    "form",
    [
        {"path": "//elsewhere"},
        {"headers": "no JSON"},
        {"headers": "[]"},
        {"path": "/", "body": "x", "more": "y"},
    ],
)
async def test_a_form_that_cannot_be_sent_on_is_refused(
    cloud: Cloud, deployment: Deployment, form: dict[str, str]
) -> None:
    fields = FormData()
    for name, value in form.items():
        fields.add_field(name, value, content_type="text/plain")
    answer = await cloud.http.post(CALL, data=fields)
    assert answer.status == 400
    assert (await answer.json())["error"]["code"] == "invalid"


async def test_what_it_answers_comes_as_it_comes(cloud: Cloud, deployment: Deployment) -> None:
    answer = await called(cloud, path="/stream")
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert await answer.content.readany() == b"data: 1\n\n"
    deployment.go_on.set()
    assert await answer.content.read() == b"data: 2\n\n"


async def test_an_answer_that_is_cut_is_cut(cloud: Cloud, deployment: Deployment) -> None:
    answer = await called(cloud, path="/cut")
    assert await answer.content.readany() == b"data: 1\n\n"
    deployment.go_on.set()
    with pytest.raises(ClientPayloadError):
        await answer.content.read()
    answer.close()


async def test_no_field_comes_back_that_a_browser_acts_upon(
    cloud: Cloud, deployment: Deployment
) -> None:
    async with cloud.http.post(CALL, json={"path": "/evil"}, allow_redirects=False) as answer:
        headers = answer.headers
        assert answer.status == 302
        assert await answer.text() == "<script>alert(1)</script>"
    assert headers["Hotplate-Location"] == "/api/v1/hotplate/deployments"
    assert headers["Content-Security-Policy"] == "sandbox; default-src 'none'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-BentoML-Request-ID"] == "7"
    for name in ("Set-Cookie", "Location", "WWW-Authenticate", "Clear-Site-Data"):
        assert name not in headers
    assert "Access-Control-Allow-Origin" not in headers


async def test_a_head_has_no_body(cloud: Cloud, deployment: Deployment) -> None:
    answer = await called(cloud, method="HEAD", path="/")
    assert (answer.status, await answer.read()) == (203, b"")


async def test_a_caller_who_leaves_leaves_the_queue(cloud: Cloud, deployment: Deployment) -> None:
    calling = asyncio.create_task(called(cloud, path="/wait"))
    await until(lambda: deployment.waiting == 1)
    calling.cancel()
    await until(lambda: deployment.waiting == 0, PATIENCE_S)


async def test_a_gateway_that_is_away_is_said(
    cloud: Cloud, deployment: Deployment, controller: FakeController
) -> None:
    controller.target = CallTarget("http://127.0.0.1:9")
    answer = await called(cloud, path="/")
    assert answer.status == 503
    error = (await answer.json())["error"]
    assert error["code"] == "not_callable"
    assert "deployment 'echo' cannot be called now" in error["message"]


async def test_one_that_is_terminated_is_said(
    cloud: Cloud, deployment: Deployment, controller: FakeController
) -> None:
    await cloud.call("POST", "/api/v2/deployments/echo/terminate")
    await controller.settled()
    answer = await called(cloud, path="/")
    assert answer.status == 409
    assert "is terminated" in await answer.text()
    assert deployment.asked == []


async def test_who_may_call(cloud: Cloud, deployment: Deployment, store: Store) -> None:
    for name, role, scopes, status in (
        ("eve", MemberRole.ENDPOINT_USER, ["api"], 203),
        ("dev", MemberRole.DEVELOPER, ["write_cluster"], 203),
        ("reader", MemberRole.ADMIN, ["read_cluster", "read_organization"], 403),
        ("caller", MemberRole.ADMIN, ["endpoint"], 403),
    ):
        other = Cloud(cloud.server, store, name=name, role=role, scopes=scopes)
        async with other:
            assert (await called(other, method="GET", path="/")).status == status, name
    async with Cloud(cloud.server, store, "rival", name="rob") as rival:
        assert (await called(rival, method="GET", path="/")).status == 404
    assert len(deployment.asked) == 2


async def test_a_sign_in_needs_a_page_of_ours(
    cloud: Cloud, deployment: Deployment, store: Store
) -> None:
    secret, _ = store.sign_ins.make_link(
        cloud.user.organization, "ada", everywhere=False, may_sign_in_operators=False
    )
    cookie = {"Cookie": f"hotplate_sign_in={store.sign_ins.follow_link(secret)}"}
    server = cloud.server
    assert isinstance(server, TestServer)
    own = str(server.make_url("")).rstrip("/")
    async with Cloud(server, store, name="eve") as other:
        for origin, status in ((None, 403), ("http://evil.example", 403), (own, 203)):
            headers = cookie | {"X-YATAI-API-TOKEN": ""} | ({"Origin": origin} if origin else {})
            answer = await other.http.post(CALL, data=json.dumps({"path": "/"}), headers=headers)
            assert answer.status == status, origin
    assert len(deployment.asked) == 1
