"""Tokens for callers of protected deployments, made and deleted with the stock client."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import aiohttp
import pytest

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform
from tests.support.patience import until

pytestmark = [pytest.mark.client, pytest.mark.usefixtures("unharmed")]

SOON_S = 6.0
"""Longer than the client takes to make a token on a busy machine."""
NOTICED_S = 2.0

BROWSER_LOGIN = """
import re, rich.prompt, urllib.parse, urllib.request
from http.cookiejar import CookieJar
from rich_toolkit.menu import Menu

def approve(question, **_):
    address = urllib.parse.urlsplit(re.search(r"(http[^ ]+)[[]", question)[1])
    (code,) = urllib.parse.parse_qs(address.query)["code"]
    cookies = urllib.request.HTTPCookieProcessor(CookieJar())
    browser = urllib.request.build_opener(cookies)
    browser.addheaders = [("Origin", {url!r})]
    for path, form in (("/login", dict(token={token!r})),
                       ("/api_tokens", dict(code=code, answer="approve"))):
        data = urllib.parse.urlencode(form).encode()
        with browser.open({url!r} + path, data) as answer:
            print("approved", answer.status)
    return False

Menu.ask = lambda self: "create"
rich.prompt.Confirm.ask = approve
from bentoml_cli.cloud import cloud_command
cloud_command(["login", "--endpoint", {url!r}])
"""
"""The stock client's login, with a person's answers in place of its prompts, and their clicks."""


async def asked(url: str, token: str) -> tuple[int, str]:
    """What a deployment answers who shows this token, without being woken by it."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.get(f"{url}/schema.json") as answer,
    ):
        return answer.status, await answer.text()


async def answered(url: str, token: str, status: int, within_s: float = NOTICED_S) -> None:
    """Wait until the gateway has been told, and answers so."""

    async def so() -> bool:
        return (await asked(url, token))[0] == status

    await until(so, within_s)


async def made(laptop: Laptop, name: str, *flags: str) -> Any:
    """The token as the client prints it in JSON, below the box that it draws around its secret."""
    printed = await laptop.bentoml("api-token", "create", name, *flags, "-o", "json")
    return json.loads(printed[printed.index("\n{") :])


@pytest.mark.essential
async def test_one_is_made_used_shown_and_deleted(
    platform: AnyPlatform, laptop: Laptop, prefixed: str
) -> None:
    token = await made(laptop, "web", "--scope", "endpoint", "-d", "the shop")
    assert (token["description"], token["scopes"]) == ("the shop", ["endpoint"])
    await answered(prefixed, token["token"], 200)
    for command in (("list",), ("get", token["uid"])):
        printed = await laptop.bentoml("api-token", *command)
        assert "web" in printed
        assert token["token"] not in printed
    await laptop.bentoml("api-token", "delete", token["uid"])
    await answered(prefixed, token["token"], 401)


async def test_who_has_a_caller_s_cannot_deploy_and_the_api_s_is_not_taken_from_callers(
    platform: AnyPlatform, laptop: Laptop, prefixed: str
) -> None:
    assert (await asked(prefixed, platform.callers_token))[0] == 200
    status, said = await asked(prefixed, platform.token)
    assert status == 401
    assert "bentoml api-token create NAME --scope endpoint" in said
    headers = {"X-YATAI-API-TOKEN": platform.callers_token}
    async with aiohttp.ClientSession(headers=headers) as http:
        for method, path in (("GET", "/api/v1/deployments"), ("POST", "/api/v2/deployments")):
            async with http.request(method, platform.url + path, json={}) as answer:
                assert answer.status == 403


async def test_one_that_expires_is_not_taken_any_longer(
    platform: AnyPlatform, laptop: Laptop, prefixed: str
) -> None:
    ends = datetime.now() + timedelta(seconds=SOON_S)
    flags = ("--scope", "endpoint", "--expires", ends.strftime("%Y-%m-%dT%H:%M:%S"))
    token = await made(laptop, "short", *flags)
    await answered(prefixed, token["token"], 200)
    await answered(prefixed, token["token"], 401, SOON_S + NOTICED_S)


@pytest.mark.one_machine("it looks at the platform's processes")
async def test_one_for_metrics_opens_those_of_every_process_until_it_is_deleted(
    platform: Platform, laptop: Laptop, prefixed: str
) -> None:
    ports = json.loads((platform.data / "run" / "ports.json").read_text())
    servers = [platform.url, *(f"http://127.0.0.1:{ports[name]}" for name in ("gateway", "agent"))]

    async def all_answer(token: str, status: int) -> bool:
        found = []
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as http:
            for server in servers:
                async with http.get(f"{server}/metrics") as answer:
                    found.append(answer.status)
        return found == [status] * len(servers)

    for token in (platform.data / "metrics-token", platform.data / "cluster-token"):
        assert await all_answer(token.read_text().strip(), 200)
    assert await all_answer(platform.token, 401) is False  # the API's says 403 there
    made_now = await made(laptop, "prometheus", "--scope", "metrics")
    await until(lambda: all_answer(made_now["token"], 200), NOTICED_S)
    await laptop.bentoml("api-token", "delete", made_now["uid"])
    await until(lambda: all_answer(made_now["token"], 401), NOTICED_S)


async def test_unknown_scopes_are_refused_in_a_sentence(laptop: Laptop) -> None:
    printed = await laptop.bentoml("api-token", "create", "x", "--scope", "endpoints", fails=True)
    assert "did you mean 'endpoint'" in " ".join(printed.split())
    assert "Traceback" not in printed


async def test_a_login_in_a_browser_is_approved_there(
    platform: AnyPlatform, laptop: Laptop
) -> None:
    program = BROWSER_LOGIN.format(url=platform.url, token=platform.token)
    printed = await laptop.python(program)
    assert f"Logged in as admin@localhost at {platform.organization} organization" in " ".join(
        printed.split()
    )
    token = next(line for line in printed.splitlines() if line.startswith("approved "))
    assert token == "approved 200"
