"""From zero to several replicas and back, by requests alone."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hotplate.autoscaler.simulator.logged_demand import read_log
from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.laptop import Laptop, deployed
from tests.support.end_to_end.rough_client import RoughClient
from tests.support.patience import until
from tests.support.services.bentos import PAIR, SLEEPY
from tests.support.services.calling import call, under_load

pytestmark = pytest.mark.client

ELASTIC = {"min_replicas": 0, "max_replicas": 3, "policy": {"scale_down_stabilization_window": 3}}


@pytest.mark.essential
async def test_requests_wake_a_deployment_and_scale_it_up_and_down(
    platform: AnyPlatform, rough: RoughClient, kitchen: str, tmp_path: Path
) -> None:
    async with rough.deployed("elastic", kitchen, Kitchen={"scaling": ELASTIC}) as url:
        await platform.asleep("elastic")
        assert (await platform.ask("elastic"))["status"] == "scaled-to-zero"
        woken = await call(f"{url}/cook", seconds=0.5)
        assert woken["most"] == 1

        async def three() -> bool:
            answered = {answer["pid"] for answer in load.answers}
            return len(answered) == len(await platform.replicas("elastic", "ready")) == 3

        async with under_load(8, f"{url}/cook", seconds=0.5) as load:
            await until(three)
        assert load.failures == []
        assert len({answer["pid"] for answer in load.answers}) == 3
        check_one_at_a_time(load.answers)

        await platform.asleep("elastic")
        decisions = await platform.ask("elastic", "/decisions")
        counts = {decision["desired"] for decision in decisions}
        assert {0, 1, 3} <= counts
        assert all(decision["reason"] for decision in decisions)
        assert decisions[0]["reason"] in await platform.status("elastic")
        log = tmp_path / "elastic.log"
        log.write_text(await platform.hotplate("why", "elastic", "--log"))
        (arrivals,) = read_log([log]).values()
        assert len(arrivals.arrival_s) >= len(load.answers), "what came can be played again"


def check_one_at_a_time(answers: list[Any]) -> None:
    """By what the handlers counted, and by when they ran."""
    assert {answer["most"] for answer in answers} == {1}
    spans = defaultdict(list)
    for answer in answers:
        spans[answer["pid"]].append((answer["began"], answer["ended"]))
    for of_one in spans.values():
        assert all(first[1] <= second[0] for first, second in pairwise(sorted(of_one)))


async def test_a_replica_gets_as_many_requests_as_it_has_slots(
    rough: RoughClient, kitchen: str
) -> None:
    three = {"config_overrides": {"traffic": {"concurrency": 3}}}
    async with rough.deployed("slots", kitchen, Kitchen=three) as url:
        async with under_load(7, f"{url}/cook", seconds=0.2) as load:

            async def enough() -> bool:
                return len(load.answers) > 20

            await until(enough)
        assert load.failures == []
        assert max(answer["most"] for answer in load.answers) == 3


async def test_one_request_wakes_a_service_and_the_one_that_it_calls(
    platform: AnyPlatform, laptop: Laptop, kitchen: str
) -> None:
    bento = await laptop.build("pair", PAIR)
    both = {"scaling": SLEEPY}
    async with deployed(platform, laptop, bento, "pair", Front=both, Back=both) as url:
        await platform.asleep("pair")
        answer = await call(f"{url}/ask", text="hello")
        assert answer["back"]["text"] == "HELLO"
        assert answer["front"] != answer["back"]["pid"]
        services = [replica["service"] for replica in await platform.replicas("pair", "ready")]
        assert sorted(services) == ["Back", "Front"]
        await platform.asleep("pair")
