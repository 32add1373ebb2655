"""Many deployments on one machine, and one too many."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from hotplate.deploy.local.machine import detect
from tests.support.end_to_end.census import take
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import ARENA_BYTES, Platform
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.patience import until
from tests.support.services.bentos import KITCHEN, SLEEPY
from tests.support.services.calling import call, under_load

pytestmark = [pytest.mark.client, pytest.mark.one_machine("it is about the room on one machine")]

PASSING = 3
CONNECTIONS = PASSING - 1
"""Kept between roles for the next request, at most: one descriptor per deployment is too many."""
GIB = replace(detect(), arena_bytes=ARENA_BYTES).capacity.memory_bytes / 2**30
HALF_AND_MORE = {"resources": {"memory": round(GIB * 0.51, 2)}}
"""Of the machine's memory: two such replicas do not fit. Of its CPUs several would."""


async def test_deployments_that_come_and_go_leave_nothing(
    platform: Platform, rough: RoughClient, bento: Bento, sleeper: str
) -> None:
    await platform.asleep("sleeper")
    await come_and_go(platform, rough, bento, "first")  # what is made once is there from now on
    before = take(platform)
    for number in range(PASSING):
        await come_and_go(platform, rough, bento, f"passing-{number}")

    async def nothing_left() -> bool:
        return not take(platform).leftovers(before, CONNECTIONS)

    try:
        await until(nothing_left)
    except TimeoutError:
        pytest.fail("; ".join(take(platform).leftovers(before, CONNECTIONS)))


async def come_and_go(platform: Platform, rough: RoughClient, bento: Bento, name: str) -> None:
    """A deployment of a bento of its own, which answers once."""
    changed = bento.changed(name, {"src/service.py": KITCHEN.replace('"v1"', f'"{name}"')})
    await rough.deploy(name, await rough.push(changed), Kitchen={"scaling": SLEEPY})
    assert (await call(f"{await platform.url_of(name)}/cook"))["version"] == name
    await platform.delete(name)


async def test_several_that_sleep_use_no_process_and_wake_at_once(
    platform: Platform, rough: RoughClient, sleeper: str
) -> None:
    await platform.asleep("sleeper")
    before = take(platform)
    names = [f"asleep-{number}" for number in range(2)]
    for name in names:
        await rough.deploy(name, "kitchen:v1", Kitchen={"scaling": SLEEPY})
    try:
        for name in names:
            await rough.settled(name, "scaled-to-zero")
            await platform.asleep(name)

        async def no_process_more() -> bool:
            after = take(platform)
            listen = after.listening == before.listening + len(names)
            return listen and after.processes <= before.processes

        await until(no_process_more)
        urls = [await platform.url_of(name) for name in names]
        answers = await asyncio.gather(*(call(f"{url}/cook") for url in urls))
        assert len({answer["pid"] for answer in answers}) == len(names)
    finally:
        await asyncio.gather(*(platform.delete(name) for name in names))


@pytest.mark.usefixtures("unharmed")
async def test_what_does_not_fit_waits_with_the_reason_and_starts_when_there_is_room(
    platform: Platform, laptop: Laptop, rough: RoughClient, kitchen: str
) -> None:
    """The machine is full of one deployment that wants more, while another comes."""
    at_once = {"min_replicas": 1, "max_replicas": 2, "policy": {"scale_up_behavior": "fast"}}
    greedy = {"config_overrides": HALF_AND_MORE, "scaling": at_once}
    modest = {"config_overrides": HALF_AND_MORE, "scaling": SLEEPY}
    try:
        await rough.deploy("greedy", kitchen, Kitchen=greedy)
        url = await platform.url_of("greedy")
        async with under_load(4, f"{url}/cook", seconds=0.2) as load:
            status, reason = await short_of_memory(platform, "greedy")
            assert status == "running"
            assert reason.startswith("1 replica ready; 1 of 2 granted: ")
            assert "GiB of memory are wanted" in reason
        assert load.failures == []

        await rough.deploy("modest", kitchen, Kitchen=modest)
        status, reason = await short_of_memory(platform, "modest")
        assert status == "deploying"
        assert reason.startswith("it waits: 0 of 1 granted: ")
        shortage = f"GiB of memory are wanted and {GIB:.3g} GiB of memory can be promised"
        assert shortage in reason
        said = await platform.status("modest")
        assert "deploying" in said
        assert shortage in said
        events = await platform.hotplate("events", "modest")
        assert "Cut" in events
        assert shortage in events
        # Not `get`: that is held for as long as the deployment may still be ready at once.
        listed = json.loads(await laptop.bentoml("deployment", "list", "-o", "json"))
        (shown,) = [one["status"] for one in listed if one["name"] == "modest"]
        assert shown["status"] == "deploying"
        await platform.delete("greedy")
        await rough.settled("modest", "running")
        assert (await call(f"{await platform.url_of('modest')}/cook"))["version"] == "v1"
    finally:
        await asyncio.gather(*(platform.delete(name) for name in ("greedy", "modest")))


async def short_of_memory(platform: Platform, name: str) -> tuple[str, str]:
    """Status and reason of a deployment, once something of it does not fit."""

    async def said() -> tuple[str, str] | None:
        page = await platform.ask(name)
        return (page["status"], page["reason"]) if "granted: " in page["reason"] else None

    found = await until(said)
    assert found is not None
    return found
