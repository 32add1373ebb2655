"""Figures on pages are what the API answers, and what happens is there soon."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from tests.browser.paths import PATHS
from tests.browser.town import Town
from tests.browser.visitor import Visitor, needs_chromium
from tests.support.control_plane.cloud import ApiSession
from tests.support.patience import until

pytestmark = [needs_chromium, pytest.mark.one_machine("it starts a platform of its own")]
LIVES = ("/series?", "/costs?", "hotplate/models/")
"""Of what changes with every answer, another test asks."""


def value_at(answer: Any, field: str, names: dict[str, str]) -> Any:
    """The member of an answer that a figure shows; of lists the item whose name is around it."""
    for key in ("", *field.split(".")):
        answer = (answer or {}).get(key) if key else answer
        while isinstance(answer, list):
            said = set(names.values())
            answer = next(item for item in answer if said & {str(v) for v in flat(item)})
    return answer


def flat(item: Any) -> list[Any]:
    """What an item may be called by."""
    if not isinstance(item, dict):
        return [item]
    keys = ("id", "name", "digest", "uid", "path", "service", "version", "pool", "number")
    found = [item[key] for key in keys if key in item]
    if isinstance(item.get("repository"), dict):
        found.append(f"{item['repository']['name']}:{item['version']}")
    return found


def written(value: Any) -> str:
    if value is None or value == "":
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def same(shown: str, value: Any) -> bool:
    """Disks and memory change between any two answers, by less than is shown."""
    if isinstance(value, float | int) and not isinstance(value, bool) and shown:
        return abs(float(shown) - value) <= (1e-3 if abs(value) > 1e6 else 1e-9) * max(
            1, abs(value)
        )
    return shown == written(value)


@pytest.mark.parametrize("path", [path for path in PATHS if "codespaces" not in path])
async def test_what_is_shown_is_what_the_api_answers(
    town: Town, visitor: Visitor, path: str
) -> None:
    await visitor.open(path)
    async with ApiSession(town.platform.url, town.platform.token) as api:

        async def wrong() -> list[str]:
            figures = await visitor.figures()
            answers = {}
            for source in {one["source"] for one in figures if one["source"]}:
                if not any(part in source for part in LIVES):
                    answers[source] = await api.call("GET", source)
            return [
                f"{one['field']} is {one['value']!r}, not {value!r}"
                for one in figures
                if one["source"] in answers
                for value in [value_at(answers[one["source"]], one["field"], one["names"])]
                if not same(one["value"] or "", value)
            ]

        async def right() -> bool:
            return await wrong() == []

        try:
            await until(right, 10)
        except TimeoutError:
            assert await wrong() == []
    if path.startswith(("/deployments", "/platform")):
        assert len(await visitor.figures()) > 3


async def test_a_request_and_its_log_line_are_on_the_screen_soon(
    town: Town, visitor: Visitor
) -> None:
    await visitor.open("/deployments/chat/logs")
    url = await town.platform.url_of("chat")
    async with aiohttp.ClientSession() as http:
        body = {"text": "needle", "seconds": 3}
        asking = asyncio.create_task(http.post(f"{url}/say", json=body))
        await visitor.page.get_by_text("said 'needle'").first.wait_for()
        await visitor.open("/deployments/chat/replicas")
        (await asking).release()
    await visitor.open("/deployments/chat")
    figure = visitor.page.locator("[data-field='live.services.in_flight']").first
    async with aiohttp.ClientSession() as http:
        asking = asyncio.create_task(http.post(f"{url}/say", json=body))
        changed = "[data-field='live.services.in_flight']:not([data-value='0'])"
        await visitor.page.wait_for_selector(changed)
        (await asking).release()
    assert await figure.get_attribute("data-source") == "/api/v1/hotplate/deployments/chat"
