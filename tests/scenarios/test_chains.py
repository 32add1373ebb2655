"""Services that call services: they wake together, fail with a reason, and end without a noise."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.laptop import Laptop, deployed
from tests.support.end_to_end.platform_process import Platform
from tests.support.patience import until
from tests.support.services.bentos import IMAGE, SLEEPY
from tests.support.services.calling import Refused, call, process_of

pytestmark = pytest.mark.client

SLOW_S = 6.0
"""Longer than BentoML waits for a service to say that what it calls is ready, which is 5 s."""

CHAIN = (
    IMAGE
    + f"""

@bentoml.service(image=image)
class Last:
    def __init__(self) -> None:
        time.sleep({SLOW_S})

    @bentoml.api
    def name(self) -> str:
        return "last"


@bentoml.service(image=image)
class Middle:
    last = bentoml.depends(Last)

    @bentoml.api
    async def name(self) -> str:
        return "middle, " + await self.last.to_async.name()


@bentoml.service(image=image)
class First:
    middle = bentoml.depends(Middle)

    @bentoml.api
    async def name(self) -> str:
        return "first, " + await self.middle.to_async.name()
"""
)

LICENSED = (
    IMAGE
    + """

@bentoml.service(image=image)
class Back:
    def __init__(self) -> None:
        if os.path.exists(os.environ["EXPIRED"]):
            raise RuntimeError("the licence has expired")

    @bentoml.api
    def pid(self) -> int:
        return me()


@bentoml.service(image=image)
class Front:
    back = bentoml.depends(Back)

    @bentoml.api
    async def pids(self) -> dict:
        return {"front": me(), "back": await self.back.to_async.pid()}
"""
)


async def test_a_chain_wakes_together_and_is_ready_when_its_slowest_member_is(
    platform: AnyPlatform, laptop: Laptop, kitchen: str, unharmed: None
) -> None:
    bento = await laptop.build("chain", CHAIN)
    asleep = {name: {"scaling": SLEEPY} for name in ("First", "Middle", "Last")}
    async with deployed(platform, laptop, bento, "chain", **asleep) as url:
        await platform.asleep("chain")
        answered_at, ready_at = await asyncio.gather(first_answer(url), ready(url))
        replicas = await platform.replicas("chain", "ready")
        began = [datetime.fromisoformat(each["created_at"]) for each in replicas]
        assert max(began) - min(began) < timedelta(seconds=1)
        said = {r["service"]: datetime.fromisoformat(r["ready_at"]) for r in replicas}
        assert said.keys() == asleep.keys()
        assert said["Last"] == max(said.values())
        assert said["Last"] - said["First"] > timedelta(seconds=SLOW_S / 2)
        for at in (answered_at, ready_at):
            assert timedelta() < at - said["Last"] < timedelta(seconds=1)

        await platform.asleep("chain")
        waiting = asyncio.create_task(call(f"{url}/name"))

        async def waits_for_the_last() -> bool:
            return len(await platform.replicas("chain", "ready")) == 2

        await until(waits_for_the_last)
        await laptop.bentoml("deployment", "terminate", "chain")
        with pytest.raises(Refused, match="'chain' is terminated"):
            await waiting
    if isinstance(platform, Platform):
        logs = [path.read_text() for path in ended(platform, "chain-")]
        assert len(logs) == 9, "three starts of three services"
        assert not [log for log in logs if "Traceback" in log]


async def first_answer(url: str) -> datetime:
    """When a call is answered that comes now."""
    assert await call(f"{url}/name") == "first, middle, last"
    return datetime.now(UTC)


async def ready(url: str) -> datetime:
    """The same of `GET /readyz`."""
    async with aiohttp.ClientSession() as http, http.get(f"{url}/readyz") as answer:
        assert answer.status == 200
    return datetime.now(UTC)


def ended(platform: Platform, prefix: str) -> list[Path]:
    """The logs of replicas that have ended."""
    return list((platform.data / "engine" / "ended").glob(f"{prefix}*.log"))


@pytest.mark.one_machine("its replicas read files that it writes meanwhile")
async def test_a_dependency_that_fails_is_told_of_and_does_not_end_who_calls_it(
    platform: Platform, laptop: Laptop, kitchen: str, tmp_path: Path
) -> None:
    bento, expired = await laptop.build("licensed", LICENSED), platform.shared / "expired"
    envs = [{"name": "EXPIRED", "value": str(expired)}]
    services = {"Front": {"cold_start_timeout": 6}, "Back": {"envs": envs}}
    async with deployed(platform, laptop, bento, "licensed", **services) as url:
        before = await call(f"{url}/pids")
        expired.touch()
        os.kill(process_of(before["back"]), signal.SIGKILL)

        async def told() -> bool:
            reason = (await platform.ask("licensed"))["reason"]
            return "service 'Back': " in reason and "the licence has expired" in reason

        await until(told)
        with pytest.raises(Refused, match=r"no replica became ready in 6 s \(service 'Back': "):
            await call(f"{url}/pids")
        expired.unlink()
        after = await call_until_answered(f"{url}/pids")
        assert after["front"] == before["front"]
        assert after["back"] != before["back"]
    assert len(ended(platform, "licensed-1-front-")) == 1


async def call_until_answered(url: str) -> dict[str, int]:
    answer: dict[str, int] = {}

    async def answered() -> bool:
        try:
            answer.update(await call(url))
        except Refused:  # the pauses between its attempts are longer than a call is held
            return False
        return True

    await until(answered)
    return answer
