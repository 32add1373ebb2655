"""WebSockets whose callers vanish while their handlers never return."""

from __future__ import annotations

import re

import aiohttp
import pytest

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.laptop import Laptop
from tests.support.patience import until
from tests.support.services.bentos import SLEEPY
from tests.support.services.sockets import DEAF, HANDSHAKE_S, NEVER_RETURN, Visitor

pytestmark = pytest.mark.client


async def test_callers_that_vanish_leave_their_slots_to_others_and_no_replica_up(
    platform: AnyPlatform, laptop: Laptop, kitchen: str
) -> None:
    tag = await laptop.build("deaf", DEAF)
    await laptop.deploy("deaf", tag, Deaf={"scaling": SLEEPY})
    url = await platform.url_of("deaf")
    for handler, reset in zip(NEVER_RETURN, (False, True), strict=True):
        (await Visitor.of(url, handler)).vanish(reset=reset)
    third = await Visitor.of(url, "echoes")
    assert 5 < third.handshake_s <= HANDSHAKE_S
    (replica,) = await platform.replicas("deaf")

    async def counted() -> bool:
        return "  2 abandoned handlers" in await platform.hotplate("status", "deaf")

    await until(counted)
    (replica,) = await platform.replicas("deaf")
    assert replica["abandoned_handlers"] == 2
    assert await platform.in_flight("deaf", "Deaf") == 1
    async with aiohttp.ClientSession() as http:
        answer = await http.post(f"{url}/greet", json={"name": "you"})
        assert await answer.text() == "hello you"
    third.vanish(reset=False)

    async def asleep() -> bool:
        left = await platform.replicas("deaf")
        return all(replica["state"] == "stopping" for replica in left)

    await until(asleep)
    assert re.search(r"^deaf .* scaled-to-zero", await platform.hotplate("status"), re.MULTILINE)
    await platform.delete("deaf")
