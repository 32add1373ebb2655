"""Every instant of a cold start belongs to a phase: their lengths add up to the whole."""

from __future__ import annotations

import asyncio

import pytest

from hotplate.deploy.phases import unix_now
from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.cold_start import ColdStart
from tests.support.patience import until
from tests.support.services.calling import Refused, call

pytestmark = pytest.mark.client

PROBED_S = 1.0
"""A cluster asks a pod each second whether it is ready; a gateway does not wait for that."""
CHAIN = {"instance", "environment", "process", "init"}


async def last_start(platform: AnyPlatform, name: str, since: float = 0.0) -> ColdStart:
    """The last one, once there is one that was wanted since then (Unix seconds): on a cluster
    gateways know of a pod as soon as the control plane."""
    found: list[ColdStart] = []

    async def recorded() -> bool:
        found[:] = map(ColdStart.of, await platform.ask(name, "/cold_starts?count=1"))
        return bool(found) and found[0].wanted_at > since

    await until(recorded)
    return found[0]


def check(start: ColdStart) -> None:
    assert start.length_error < 0.05, start
    assert start.share_error < 1e-3, start


async def test_a_wake_up_adds_up_and_so_does_the_second_attempt_after_a_crash(
    platform: AnyPlatform, sleeper: str
) -> None:
    await platform.asleep("sleeper")
    asked_at = unix_now()
    await call(f"{sleeper}/cook")
    waited_s = unix_now() - asked_at
    first = await last_start(platform, "sleeper", asked_at)
    assert set(first.length_s) == CHAIN
    check(first)
    known_s = waited_s + PROBED_S
    assert 0.5 * waited_s < first.whole_s < known_s, "a wake-up is a cold start, and little else"

    # Those behind the crash are held, so the replica is wanted all the time.
    crash = asyncio.create_task(call(f"{sleeper}/crash"))
    await asyncio.gather(*(call(f"{sleeper}/cook") for _ in range(3)))
    with pytest.raises(Refused):
        await crash
    (replica,) = await platform.replicas("sleeper")
    assert replica["restarts"] == 1
    second = await last_start(platform, "sleeper", first.ready_at)
    assert second.replica == first.replica, "the pause after a crash is no part of a start"
    check(second)
    chart = await platform.hotplate("status", "sleeper")
    assert f"{second.whole_s:7.2f} s\n" in chart
