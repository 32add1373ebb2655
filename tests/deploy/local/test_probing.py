"""Readiness, asked of a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager

import aiohttp
from aiohttp import web

from hotplate.deploy.local.probing import Probe, ProbeResult, ProbeSettings
from tests.support.patience import PATIENCE_S

QUICK = ProbeSettings(interval_s=0.01, timeout_s=0.2, first_pause_s=0.01, max_pause_s=0.02)


@asynccontextmanager
async def probing(statuses: Iterator[int], held_s: float = 0.0) -> AsyncIterator[Probe]:
    """A probe of a server that answers with `statuses` in turn; 0 = no answer."""

    async def ready(request: web.Request) -> web.Response:
        status = next(statuses)
        await asyncio.sleep(held_s or (3600 if status == 0 else 0))
        return web.Response(status=status, text="" if status == 204 else "as\ntold")

    app = web.Application()
    app.router.add_get("/readyz", ready)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0]
    async with aiohttp.ClientSession() as http:
        yield Probe(http, f"http://{host}:{port}/readyz", QUICK)
    await runner.cleanup()


async def test_one_request_is_the_wait_for_readiness() -> None:
    asked = iter([200])
    async with probing(asked, held_s=0.3) as probe:
        await probe.until_ready()
    assert next(asked, None) is None


async def test_any_other_status_is_not_ready() -> None:
    asked = iter([500, 503, 204, 302, 200, 404])
    async with probing(asked) as probe:
        told: list[str] = []
        await probe.until_ready(told.append)
    assert next(asked) == 404
    assert told == ["HTTP 500 (as told)", "HTTP 503 (as told)", "HTTP 204", "HTTP 302 (as told)"]


async def checked(probe: Probe, times: int) -> list[ProbeResult]:
    async with aclosing(probe.health()) as checks:
        return [await anext(checks) for _ in range(times)]


async def test_three_failures_in_a_row_are_unready_and_one_answer_is_ready() -> None:
    async with probing(iter([200, 503, 503, 200, 503, 0, 500, 500, 200])) as probe:
        found = await checked(probe, 9)
    assert [bool(health.why_not) for health in found] == [False] * 6 + [True, True, False]
    assert found[6].why_not == "its last 3 readiness checks failed: HTTP 500 (as told)"


async def test_silence_is_measured_from_unready_on_and_broken_by_any_answer() -> None:
    async with probing(iter([0, 0, 0, 0, 0, 503, 0, 200])) as probe:
        found = await checked(probe, 8)
    assert [health.silent_s > 0 for health in found] == [False] * 3 + [
        True,
        True,
        False,
        True,
        False,
    ]
    assert 0.3 < found[4].silent_s < PATIENCE_S
    assert found[4].why_not == "its last 3 readiness checks failed: no answer within 0.2 s"


async def test_a_refused_connection_is_a_failure() -> None:
    async with probing(iter([])) as probe:
        pass
    async with aiohttp.ClientSession() as http:
        gone = Probe(http, probe.url, QUICK)
        found = await checked(gone, 3)
    assert "refused" in found[2].why_not or "Cannot connect" in found[2].why_not
