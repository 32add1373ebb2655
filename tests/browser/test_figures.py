"""Figures on pages are what the API answers, and what happens is there soon."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from hotplate.deploy.phases import unix_now
from tests.browser.paths import NAME, PATHS
from tests.browser.town import Town
from tests.browser.visitor import Visitor, needs_chromium
from tests.support.control_plane.cloud import ApiSession
from tests.support.patience import until

pytestmark = [needs_chromium, pytest.mark.one_machine("it starts a platform of its own")]
GROWS = ("gpu_s", "replica_s", "cost")
"""What replicas take, more with every second."""
GROWN_S = 120.0
PAST_S = (600, 20)
"""From when to when charts show what changes no more, in seconds ago."""

FEWEST = {"/": 15, f"/deployments/{NAME}": 25, f"/deployments/{NAME}/why": 10, "/secrets": 2}
"""Figures of pages that have many."""
KEYS = (
    *("id", "name", "digest", "uid", "path", "service", "version", "pool", "number", "revision"),
    *("at", "created_at", "replica", "organization", "deployment", "day"),
)
"""What items of lists are called by."""


def value_at(answer: Any, field: str, names: dict[str, str]) -> Any:
    """The member of an answer that a figure shows; of lists the item whose names are around it,
    of columns the last value that is known."""
    said = set(names.values())
    for key in ("", *field.split(".")):
        answer = (answer or {}).get(key) if key else answer
        if isinstance(answer, list) and (not answer or not isinstance(answer[0], dict)):
            return next((value for value in reversed(answer) if value is not None), None)
        if isinstance(answer, list):
            answer = max(answer, key=lambda item: len(said & {str(v) for v in flat(item)}))
            assert said & {str(v) for v in flat(answer)}, f"no item of {names} has {field}"
    return answer


def flat(item: Any) -> list[Any]:
    """What an item may be called by."""
    if not isinstance(item, dict):
        return [item]
    found = [item[key] for key in KEYS if key in item]
    if isinstance(item.get("repository"), dict):
        found.append(f"{item['repository']['name']}:{item['version']}")
    return found


def written(value: Any) -> str:
    if value is None or value == "":
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def same(shown: str, value: Any, field: str) -> bool:
    """Disks and memory change between any two answers, by less than is shown."""
    if any(part in field.split(".") for part in GROWS) and shown and value:
        return abs(float(shown) - float(value)) <= GROWN_S
    if isinstance(value, float | int) and not isinstance(value, bool) and shown:
        return abs(float(shown) - value) <= (1e-3 if abs(value) > 1e6 else 1e-9) * max(
            1, abs(value)
        )
    return shown == written(value)


def past() -> str:
    """The query of a page that shows a time that is over."""
    now = int(unix_now())
    return f"?from={now - PAST_S[0]}&to={now - PAST_S[1]}"


@pytest.mark.parametrize("path", PATHS)
async def test_what_is_shown_is_what_the_api_answers(
    town: Town, visitor: Visitor, path: str
) -> None:
    await visitor.open(path + past())
    async with ApiSession(town.platform.url, town.platform.token) as api:

        async def wrong() -> list[str]:
            figures = await visitor.figures()
            answers = {}
            for source in {one["source"] for one in figures if one["source"]}:
                answers[source] = await api.call("GET", source)
            return [
                f"{one['field']} is {one['value']!r}, not {value!r}"
                for one in figures
                for value in [value_at(answers[one["source"]], one["field"], one["names"])]
                if not same(one["value"] or "", value, one["field"])
            ]

        async def right() -> bool:
            return await wrong() == []

        try:
            await until(right, 10)
        except TimeoutError:
            assert await wrong() == []
    assert len(await visitor.figures()) >= FEWEST.get(path, 3)
    assert await visitor.bare_numbers() == []


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
    figure = visitor.page.locator("[data-field='totals.in_flight']").first
    async with aiohttp.ClientSession() as http:
        asking = asyncio.create_task(http.post(f"{url}/say", json=body))
        changed = "[data-field='totals.in_flight']:not([data-value='0'])"
        await visitor.page.wait_for_selector(changed)
        (await asking).release()
    assert await figure.get_attribute("data-source") == "/api/v1/hotplate/deployments/chat"
