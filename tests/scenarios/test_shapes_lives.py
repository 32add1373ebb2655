"""Services of every shape when they start, end, or say that they are not ready."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from typing import Any

import aiohttp
import pytest

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.laptop import Laptop
from tests.support.patience import until
from tests.support.services.calling import Tasks, process_of
from tests.support.services.shapes import Shapes, most_at_once

pytestmark = pytest.mark.client


async def ask(url: str) -> dict[str, Any]:
    """The command's answer: its process, and when its handler began and ended."""
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        assert answer.status == 200, await answer.text()
        pid, began, ended = (await answer.text()).split()
    return {"pid": int(pid), "began": float(began), "ended": float(ended)}


@pytest.mark.one_machine("its replicas read files that it writes meanwhile")
async def test_a_service_gets_no_request_before_it_says_that_it_is_ready(
    prefixed: str, shapes: Shapes, platform: AnyPlatform
) -> None:
    await platform.asleep("prefixed")
    shapes.unready.touch()
    try:
        asked = asyncio.create_task(greet(prefixed, platform.callers_token))

        async def stands() -> bool:
            # Without its id, the last replica's log would say it for the one that is to come.
            ids = [one["id"] for one in await platform.replicas("prefixed", "starting")]
            paths = [f"/logs?replica={name}&lines=100" for name in ids]
            logs = [await platform.ask("prefixed", path) for path in paths]
            return "Service Prefixed initialized" in str(logs)

        await until(stands)
        assert await platform.replicas("prefixed", "starting")
        assert not asked.done()
    finally:
        shapes.unready.unlink()
    assert await asked == "hello you"


async def greet(url: str, token: str) -> str:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.post(f"{url}/v1/say/hello", json={"name": "you"}) as answer,
    ):
        return await answer.text()


@pytest.mark.essential
async def test_a_command_answers_and_has_its_slots(command: str, shapes: Shapes) -> None:
    assert await shapes.slots("command", "Command") == 32
    answers = await asyncio.gather(*(ask(f"{command}/any?0.2") for _ in range(3)))
    assert len({answer["pid"] for answer in answers}) == 1
    assert most_at_once(answers) == 3


@pytest.mark.essential
async def test_a_replica_ends_with_its_command_and_comes_back(
    command: str, platform: AnyPlatform
) -> None:
    killed = await ask(f"{command}/any")
    os.kill(process_of(killed["pid"]), signal.SIGKILL)

    async def told() -> bool:
        return "ReplicaCrashed" in await platform.hotplate("events", "command")

    await until(told)
    after = await ask(f"{command}/any")
    assert after["pid"] != killed["pid"]
    said = await platform.hotplate("logs", "command", "--lines", "1000")
    assert "The service's command ended by itself with exit code -9." in said
    assert "the command listens" in said


async def test_a_new_revision_of_a_command_gets_a_port_beside_the_old_one(
    command: str, shapes: Shapes, platform: AnyPlatform, laptop: Laptop
) -> None:
    """Without a gap: both run until the new one answers."""
    before = await ask(f"{command}/any")
    envs = (f"COMMAND_PORT={shapes.command_port}", f"NOTES={shapes.notes}", "NEW=yes")
    update = [word for env in envs for word in ("--env", env)]
    updating = asyncio.create_task(laptop.bentoml("deployment", "update", "command", *update))
    pids = {before["pid"]}
    while len(pids) < 2:
        pids.add((await ask(f"{command}/any?0.02"))["pid"])
    await updating


async def test_a_task_that_may_run_twice_runs_again_when_its_replica_dies(
    tasks: str, platform: AnyPlatform
) -> None:
    """The stock client has brought the label that says so."""
    toil = Tasks(f"{tasks}/toil")
    first = await toil.submit(seconds=0)
    await toil.reached(first, "completed")
    killed = (await toil.result(first))["pid"]
    cut = await toil.submit(seconds=2)
    await toil.reached(cut, "in_progress")
    os.kill(process_of(killed), signal.SIGKILL)
    await toil.reached(cut, "completed")
    assert (await toil.result(cut))["pid"] != killed
    assert "ReplicaCrashed" in await platform.hotplate("events", "tasks")


async def test_a_file_that_a_task_has_made_outlives_its_deployment(
    tasks: str, laptop: Laptop, platform: AnyPlatform
) -> None:
    """Last of `tasks`: it ends what the other tests use."""
    draw, seed = Tasks(f"{tasks}/draw"), os.urandom(64)
    drawn = await draw.submit(seed=seed.hex(), times=10_000)
    await draw.reached(drawn, "completed")
    assert await draw.file(drawn) == seed * 10_000
    await laptop.bentoml("deployment", "terminate", "tasks")

    async def terminated() -> bool:
        return bool((await platform.ask("tasks"))["status"] == "terminated")

    await until(terminated)
    assert await platform.replicas("tasks") == []
    assert await draw.file(drawn) == seed * 10_000


@pytest.mark.one_machine("its replicas read files that it writes meanwhile")
async def test_hooks_run_once_where_they_should(
    hall: str, shapes: Shapes, platform: AnyPlatform
) -> None:
    """Last: it ends what the other tests use."""
    await platform.delete("hall")
    notes = Counter(line.split()[0] for line in shapes.notes.read_text().splitlines())
    notes.pop("ended", None)  # the command's
    assert notes == {"deployed": 1, "started": 2, "stopped": 2}
