"""A new revision under load."""

from __future__ import annotations

import pytest

from tests.scenarios.bentos import KITCHEN
from tests.scenarios.calling import under_load
from tests.scenarios.laptop import Laptop, deployed
from tests.scenarios.platform_process import Platform, until

pytestmark = [pytest.mark.client, pytest.mark.timeout(60)]


async def test_a_new_bento_takes_over_under_load_and_the_same_again_changes_nothing(
    platform: Platform, laptop: Laptop, kitchen: str
) -> None:
    successor = await laptop.build("kitchen", KITCHEN.replace('"v1"', '"v2"'), "v2")
    update = ("deployment", "update", "changing", "--bento", successor)
    async with deployed(platform, laptop, kitchen, "changing") as url:
        async with under_load(4, f"{url}/cook", seconds=0.05) as load:
            await laptop.bentoml(*update)

            async def replaced() -> bool:
                return [r["revision"] for r in await platform.replicas("changing")] == [2]

            await until(replaced, 30)
            before = len(load.answers)

            async def some_more() -> bool:
                return len(load.answers) > before + 10

            await until(some_more, 10)
        assert load.failures == []
        assert load.answers[0]["version"] == "v1"
        assert {answer["version"] for answer in load.answers[before + 4 :]} == {"v2"}
        assert {answer["most"] for answer in load.answers} == {1}

        serving = await platform.ask("changing")
        await laptop.bentoml(*update)
        after = await platform.ask("changing")
        assert after["revision"] == serving["revision"] == 2
        assert ids(after["live"]) == ids(serving["live"])


def ids(live: dict[str, list[dict[str, str]]]) -> list[str]:
    return [replica["id"] for replica in live["replicas"]]
