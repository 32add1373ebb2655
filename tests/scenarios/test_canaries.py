"""A canary with real replicas, under load."""

from __future__ import annotations

from functools import partial
from typing import Any

import aiohttp
import pytest

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.patience import until
from tests.support.services.bentos import KITCHEN
from tests.support.services.calling import under_load

pytestmark = pytest.mark.client

ONE = {"scaling": {"min_replicas": 1, "max_replicas": 1}}
SLOTS = {"config_overrides": {"traffic": {"concurrency": 16}}}
CHANGES = (20, 0, 50, 35, 100, 40)


async def test_weights_change_under_load_and_a_version_is_promoted(
    platform: AnyPlatform, rough: RoughClient, bento: Bento
) -> None:
    second = bento.changed("kitchen-canary", {"src/service.py": KITCHEN.replace('"v1"', '"v2"')})
    successor = await rough.push(second)
    services = {"Kitchen": {**ONE, **SLOTS}}

    def body(weight: int, **more: Any) -> dict[str, Any]:
        version = {"bento": successor, "weight": weight, "services": services}
        canary = {"versions": {"next": version}, **more}
        return {"bento": bento.tag, "services": services, "canary": canary}

    async def change(weight: int, **more: Any) -> None:
        await rough.call("PUT", "/api/v2/deployments/canary", body(weight, **more))

    async def ready() -> bool:
        shown = (await platform.ask("canary", "/rollout"))["versions"]
        return {(v["version"], v["ready"]) for v in shown} == {("main", 1), ("next", 1)}

    await rough.call("POST", "/api/v2/deployments", {"name": "canary", **body(50)})
    try:
        await until(ready)
        url = await platform.url_of("canary")
        async with under_load(5, f"{url}/cook", seconds=0.05) as load:
            answered = load.answers

            async def both() -> bool:
                return {answer["version"] for answer in answered[-40:]} == {"v1", "v2"}

            await until(both)
            pids = {answer["pid"] for answer in answered}
            for weight in CHANGES:
                await change(weight)
                seen = len(answered)
                await until(lambda seen=seen: len(answered) > seen + 20)  # type: ignore[misc]
            assert {answer["pid"] for answer in answered} == pids
            await change(50, route_type="header", route_by="X-User")
            await until(partial(kept, url))
            await platform.hotplate("rollout", "promote", "canary", "next")

            async def alone() -> bool:
                return {answer["version"] for answer in answered[-20:]} == {"v2"}

            await until(alone)
        assert load.failures == []
        shown = await rough.call("GET", "/api/v2/deployments/canary")
        assert [t["name"] for t in shown["latest_revision"]["targets"]] == ["main"]
        assert shown["manifest"] == {"dev": False}
    finally:
        await platform.delete("canary")


async def kept(url: str) -> bool:
    """Whether every value keeps its version, and both have some."""
    versions: dict[str, set[str]] = {}
    async with aiohttp.ClientSession() as http:
        for _ in range(3):
            for number in range(20):
                user = {"X-User": f"user-{number}"}
                async with http.post(f"{url}/cook", json={}, headers=user) as answer:
                    told = answer.headers["Hotplate-Version"]
                    versions.setdefault(user["X-User"], set()).add(told)
    first = {next(iter(found)) for found in versions.values()}
    return all(len(found) == 1 for found in versions.values()) and first == {"main", "next"}
