"""A new revision under load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.patience import until
from tests.support.services.bentos import KITCHEN
from tests.support.services.calling import process_of, under_load

pytestmark = pytest.mark.client

PACE_S = 0.2
"""So long takes an answer: the callers always wait for one, and that is all the load there is."""
RAISING = KITCHEN + "\n\nraise RuntimeError('this one never starts')\n"


async def test_a_new_bento_takes_over_under_load_and_the_same_again_changes_nothing(
    platform: AnyPlatform, laptop: Laptop, rough: RoughClient, bento: Bento
) -> None:
    second = bento.changed("kitchen-2", {"src/service.py": KITCHEN.replace('"v1"', '"v2"')})
    successor = await rough.push(second)
    async with rough.deployed("changing", bento.tag) as url:
        async with under_load(4, f"{url}/cook", seconds=PACE_S) as load:
            await rough.update("changing", successor)

            async def replaced() -> bool:
                return [r["revision"] for r in await platform.replicas("changing")] == [2]

            await until(replaced)
            before = len(load.answers)

            async def some_more() -> bool:
                return len(load.answers) > before + 10

            await until(some_more)
        assert load.failures == []
        assert load.answers[0]["version"] == "v1"
        assert {answer["version"] for answer in load.answers[before + 4 :]} == {"v2"}
        assert {answer["most"] for answer in load.answers} == {1}

        serving = await platform.ask("changing")
        await laptop.bentoml("deployment", "update", "changing", "--bento", successor)
        after = await platform.ask("changing")
        assert after["revision"] == serving["revision"] == 2
        assert ids(after["live"]) == ids(serving["live"])


async def test_new_settings_take_over_under_load_and_what_cannot_start_leaves_the_old_ones(
    platform: AnyPlatform, rough: RoughClient, bento: Bento
) -> None:
    raising = await rough.push(bento.changed("kitchen-raising", {"src/service.py": RAISING}))

    async def update(tag: str, replicas: int) -> None:
        scaling = {"min_replicas": replicas, "max_replicas": replicas}
        envs = [{"name": "PLACES", "value": "many"}]
        services = {"Kitchen": {"scaling": scaling}}
        body = {"bento": tag, "envs": envs, "services": services}
        await rough.call("PUT", "/api/v2/deployments/steady", body)

    try:
        await rough.deploy("steady", bento.tag, Kitchen={"scaling": {"min_replicas": 1}})
        await serves(platform, "steady", revision=1, replicas=1)
        url = await platform.url_of("steady")
        async with under_load(3, f"{url}/cook", seconds=PACE_S) as load:
            await update(bento.tag, replicas=2)
            serving = await serves(platform, "steady", revision=2, replicas=2)
            await update(raising, replicas=1)
            failed = await rough.settled("steady", "failed")
            after = await serves(platform, "steady", revision=2, replicas=2)
            before = len(load.answers)

            async def some_more() -> bool:
                return len(load.answers) > before + 10

            await until(some_more)
            environ = environ_of(process_of(load.answers[-1]["pid"]))
        assert load.failures == []
        assert ids(after["live"]) == ids(serving["live"])
        assert "PLACES=many" in environ
        assert "this one never starts" in failed["reason"]
        assert "revision 2 keeps serving" in failed["reason"]
        assert failed["reason"] in await platform.status("steady")
        assert failed["reason"] in await platform.hotplate("events", "steady")
    finally:
        await platform.delete("steady")


async def serves(platform: AnyPlatform, name: str, revision: int, replicas: int) -> Any:
    """The platform's page, once this revision has so many replicas and no other has any."""

    async def said() -> Any:
        page = await platform.ask(name)
        there = [(each["revision"], each["state"]) for each in page["live"]["replicas"]]
        return page if there == [(revision, "ready")] * replicas else None

    return await until(said)


def environ_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_text().split("\0")


def ids(live: dict[str, list[dict[str, str]]]) -> list[str]:
    return [replica["id"] for replica in live["replicas"]]
