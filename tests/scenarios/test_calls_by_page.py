"""Calls of deployments through the API, as the dashboard's playground makes them."""

from __future__ import annotations

import aiohttp
import pytest

from tests.support.end_to_end.any_platform import AnyPlatform

pytestmark = [pytest.mark.client, pytest.mark.usefixtures("unharmed")]


@pytest.mark.essential
async def test_one_that_sleeps_and_asks_for_a_token_is_woken_and_called(
    platform: AnyPlatform, prefixed: str
) -> None:
    await platform.asleep("prefixed")
    call = {"path": "/v1/say/hello", "body": {"name": "page"}}
    url = f"{platform.url}/api/v1/hotplate/deployments/prefixed/call"
    async with aiohttp.ClientSession(headers={"X-YATAI-API-TOKEN": platform.token}) as http:
        async with http.post(url, json=call) as answer:
            assert (answer.status, await answer.text()) == (200, "hello page")
            assert answer.headers["Hotplate-Deployment"] == "prefixed"
        # What the gateway answers is answered, too.
        async with http.post(url, json=call | {"version": "v9", "method": "GET"}) as answer:
            assert answer.status in (400, 404, 405)
        async with http.post(url, json=call | {"path": "/hotplate/x"}) as answer:
            assert answer.status == 404
