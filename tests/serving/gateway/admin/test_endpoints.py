"""Who may ask a gateway's admin port what: operators by their token, anybody whether it lives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import sha256

import aiohttp
import pytest

from hotplate.machine.access.metrics_reader import MetricsReader
from hotplate.serving.gateway.admin.endpoints import Admin
from hotplate.serving.gateway.all_routes import Gateway
from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.protocol.routes import Route, RouteTable

PATHS = ("/healthz", "/metrics", "/deployments/chat/queue", "/nothing")
Ask = Callable[..., "aiohttp.client._RequestContextManager"]


@asynccontextmanager
async def admin(token: str = "", metrics_token: str | None = "") -> AsyncIterator[Ask]:
    listener = Admin(Gateway(Limits(hosts=("ops.example",))), dict, token, metrics_token)
    port = await listener.listen("127.0.0.1:0")
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        yield session.get
    await listener.close()


async def statuses(ask: Ask, **headers: str) -> list[int]:
    found = []
    for path in PATHS:
        async with ask(path, headers=headers) as answer:
            found.append(answer.status)
    return found


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_who_has_no_token_learns_that_it_lives_and_nothing_more() -> None:
    async with admin("secret", "scraper") as ask:
        for shown in ({}, bearer(""), bearer("wrong"), {"Authorization": "secret"}):
            assert await statuses(ask, **shown) == [200, 401, 401, 401]
            async with ask("/healthz", headers=shown) as answer:
                assert await answer.json() == {"status": "ok"}
        assert await statuses(ask, **bearer("secret")) == [200, 200, 404, 404]
        async with ask("/healthz", headers=bearer("secret")) as answer:
            assert "version" in await answer.json()


async def test_metrics_have_a_token_of_their_own_or_are_open() -> None:
    async with admin("secret", "scraper") as ask:
        assert await statuses(ask, **bearer("scraper")) == [200, 200, 401, 401]
    async with admin("secret", None) as ask:
        assert await statuses(ask) == [200, 200, 401, 401]
    async with admin("secret", "") as ask:
        assert await statuses(ask) == [200, 401, 401, 401]


async def test_a_token_of_the_last_table_reads_the_metrics() -> None:
    gateway = Gateway(Limits())
    readers = (MetricsReader(sha256(b"acmes").hexdigest(), organization="acme"),)
    listener = Admin(gateway, dict, "secret")
    port = await listener.listen("127.0.0.1:0")
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        for version, known, status in ((1, readers, 200), (2, (), 401)):
            await gateway.apply(RouteTable(version, readers=known))
            assert await statuses(session.get, **bearer("acmes")) == [200, status, 401, 401]
    await listener.close()


async def test_refusals_that_alerts_are_about_are_shown_before_there_are_any() -> None:
    """Prometheus sees no increase in a line that begins with 1."""
    gateway = Gateway(Limits())
    await gateway.apply(RouteTable(1, (Route("acme/chat", "127.0.0.1", 0),)))
    listener = Admin(gateway, dict)
    port = await listener.listen("127.0.0.1:0")
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
        session.get("/metrics") as answer,
    ):
        text = await answer.text()
    await listener.close()
    await gateway.apply(RouteTable(2))
    for code in ("deadline_exceeded", "no_capacity"):
        line = f'hotplate_gateway_refusals_total{{reason="{code}",route="acme/chat"}} 0.0'
        assert line in text


async def test_a_gateway_alone_without_a_token_answers_this_machine() -> None:
    async with admin() as ask:
        assert await statuses(ask) == [200, 200, 404, 404]


@pytest.mark.parametrize("token", ["", "secret"])
async def test_what_a_browser_was_led_to_send_gets_nothing_even_with_the_token(token: str) -> None:
    async with admin(token) as ask:
        for foreign in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            assert set(await statuses(ask, **foreign, **bearer(token))) == {403}
        assert set(await statuses(ask, Host="evil.example", **bearer(token))) == {421}
        assert await statuses(ask, Host="ops.example:9", **bearer(token)) == [200, 200, 404, 404]
