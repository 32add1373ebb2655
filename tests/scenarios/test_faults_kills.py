"""`kill -9` of each part: what runs goes on, what was killed comes back, nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.control_plane.cloud import MODEL_MANIFEST, tar_of
from tests.support.end_to_end.platform_process import Platform
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.patience import until
from tests.support.services.bentos import SLEEPY
from tests.support.services.calling import Load, Refused, Tasks, call, process_of, under_load
from tests.support.services.shapes import Shapes

pytestmark = pytest.mark.one_machine("it looks at the platform's processes")

CALLERS = 3
PACE_S = 0.05


@pytest.fixture(scope="module")
def harmed(
    platform: Platform, bento: Bento, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Platform]:
    """A platform to be killed part by part; its environments are those of the other one."""
    harmed = Platform(tmp_path_factory.mktemp("harmed") / "data")
    (harmed.data / "environments").symlink_to(platform.data / "environments")
    try:
        asyncio.run(harmed.start())
        asyncio.run(push(harmed, bento))
        yield harmed
    finally:
        harmed.destroy()


async def push(platform: Platform, bento: Bento) -> None:
    async with RoughClient(platform) as rough:
        await rough.push(bento)


@pytest.fixture
async def rough(harmed: Platform) -> AsyncIterator[RoughClient]:
    async with RoughClient(harmed) as client:
        yield client


@pytest.fixture(scope="module")
def url(harmed: Platform, bento: Bento) -> str:
    """A deployment with one replica that answers, and that outlives whatever is killed."""
    return asyncio.run(deploy_steady(harmed, bento))


async def deploy_steady(harmed: Platform, bento: Bento) -> str:
    async with RoughClient(harmed) as rough:
        await rough.deploy("steady", bento.tag)
        await rough.settled("steady", "running")
    return await harmed.url_of("steady")


async def kill(pid: int) -> None:
    """SIGKILL; returns when the process is dead."""
    os.kill(pid, signal.SIGKILL)
    await until(lambda: ended(pid))


async def ended(pid: int) -> bool:
    return not alive(pid)


def alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


async def killed_and_back(platform: Platform, role: str) -> None:
    """Kill a role; returns when another process of it runs and the platform is whole again."""
    before = platform.pid(role)
    await kill(before)

    async def back() -> bool:
        return platform.pid(role) != before and await platform.healthy()

    await until(back)
    assert alive(platform.pid(role))


async def enough(load: Load) -> bool:
    return len(load.answers) > 20


async def test_requests_go_on_without_the_control_plane_and_replicas_are_adopted(
    harmed: Platform, rough: RoughClient, url: str
) -> None:
    async with under_load(CALLERS, f"{url}/cook", seconds=PACE_S) as load:
        await killed_and_back(harmed, "control-plane")
        await rough.settled("steady", "running")
        await until(lambda: enough(load))
    assert load.failures == []
    assert len({answer["pid"] for answer in load.answers}) == 1
    (replica,) = await harmed.replicas("steady")
    assert replica["restarts"] == 0


async def test_a_control_plane_that_is_asked_to_end_waits_for_nobody(
    harmed: Platform, rough: RoughClient, bento: Bento
) -> None:
    """Neither for the gateway nor for a client that waits for its deployment."""
    before = harmed.pid("control-plane")
    slow = bento.changed("slow", {"src/service.py": "import time\ntime.sleep(60)\n"})
    await rough.deploy("slow", await rough.push(slow))
    held = asyncio.create_task(rough.call("GET", "/api/v2/deployments/slow"))
    await asyncio.sleep(0.5)
    assert not held.done()
    os.kill(before, signal.SIGTERM)
    await until(lambda: ended(before))
    with suppress(aiohttp.ClientError):
        await held
    await until(harmed.healthy)
    await harmed.delete("slow")


async def test_a_killed_gateway_comes_back_on_the_same_ports(harmed: Platform, url: str) -> None:
    before = await call(f"{url}/cook")
    others = [harmed.pid("control-plane"), harmed.pid("agent")]
    await killed_and_back(harmed, "gateway")

    async def answered() -> Any:
        with suppress(aiohttp.ClientError, Refused):
            return await call(f"{url}/cook")

    assert (await until(answered))["pid"] == before["pid"]
    assert [harmed.pid("control-plane"), harmed.pid("agent")] == others

    async def works_again() -> bool:
        return "the gateway works again after" in await harmed.hotplate("events")

    await until(works_again)
    events = await harmed.hotplate("events")
    assert "the gateway has ended: killed by signal 9" in events
    assert "its requests were interrupted, and can be sent again; it is started again" in events
    assert "the one before it: killed by signal 9" in await harmed.hotplate("status")


async def test_replicas_answer_without_the_agent_and_new_ones_start_after_it_is_back(
    harmed: Platform, rough: RoughClient, url: str, bento: Bento
) -> None:
    async with under_load(CALLERS, f"{url}/cook", seconds=PACE_S) as load:
        await killed_and_back(harmed, "agent")
        other = bento.changed("other", {"src/more.txt": "files the agent has not seen yet"})
        await rough.deploy("other", await rough.push(other))
        await rough.settled("other", "running")
    assert load.failures == []
    assert await call(f"{await harmed.url_of('other')}/echo", text="new") == "new"
    await harmed.delete("other")


async def test_a_killed_replica_is_started_again_and_the_others_answer_meanwhile(
    harmed: Platform, rough: RoughClient, bento: Bento
) -> None:
    two = {"scaling": {"min_replicas": 2, "max_replicas": 2}}
    await rough.deploy("two", bento.tag, Kitchen=two)
    await rough.settled("two", "running")
    url = await harmed.url_of("two")
    victim = process_of((await call(f"{url}/cook"))["pid"])

    async def restarted() -> bool:
        ready = await harmed.replicas("two", "ready")
        return [replica["restarts"] for replica in ready] in ([0, 1], [1, 0])

    async with under_load(CALLERS, f"{url}/cook", seconds=PACE_S) as load:
        await kill(victim)
        await until(restarted)
        await until(lambda: enough(load))
    assert len(load.failures) <= 1, "only what the victim was working on"
    events = await harmed.ask("two", "/events")
    assert any("killed by signal 9" in event["message"] for event in events)
    await harmed.delete("two")


async def test_what_was_answered_survives_a_kill_right_after_the_answer(
    harmed: Platform, rough: RoughClient, bento: Bento
) -> None:
    await rough.deploy("doomed", bento.tag)
    tag = await rough.push(bento.changed("lasting"))
    await rough.deploy("lasting", tag)
    await killed_and_back(harmed, "control-plane")
    await rough.settled("lasting", "running")

    await rough.call("PUT", "/api/v2/deployments/lasting", {"bento": bento.tag})
    await rough.call("DELETE", "/api/v2/deployments/doomed")
    await killed_and_back(harmed, "control-plane")
    page = await rough.settled("lasting", "running")
    assert (page["bento"], page["revision"]) == (bento.tag, 2)

    async def gone() -> bool:
        async with rough.http.get("/api/v2/deployments/doomed") as said:
            return said.status == 404

    await until(gone)
    await harmed.delete("lasting")


async def test_a_rollout_goes_on_without_up_and_the_next_up_finds_every_role(
    harmed: Platform, rough: RoughClient, url: str, bento: Bento
) -> None:
    """Also a role that `up` had not noted yet when it was killed."""
    before = harmed.pid("gateway")
    async with under_load(CALLERS, f"{url}/cook", seconds=PACE_S) as load:
        envs = [{"name": "TURN", "value": "2"}]
        body = {"bento": bento.tag, "envs": envs}
        await rough.call("PUT", "/api/v2/deployments/steady", body)
        harmed.kill()
        (harmed.data / "run" / "gateway.json").unlink()
        page = await rough.settled("steady", "running")
        await harmed.start()
    assert (page["revision"], page["serving"]) == (2, 2)
    assert load.failures == []
    assert harmed.pid("gateway") == before


async def test_roles_that_live_and_do_not_answer_are_replaced_and_cost_no_replica(
    harmed: Platform, url: str
) -> None:
    before = await call(f"{url}/cook")
    roles = ("agent", "gateway", "control-plane")
    stopped = {role: harmed.pid(role) for role in roles}
    for pid in stopped.values():
        os.kill(pid, signal.SIGSTOP)

    async def replaced() -> bool:
        others = all(harmed.pid(role) != pid for role, pid in stopped.items())
        return others and await harmed.healthy()

    async with asyncio.timeout(120):
        await until(replaced, 120)
    assert (await call(f"{url}/cook"))["pid"] == before["pid"]
    events = await harmed.hotplate("events")
    for role in roles:
        assert re.search(f"the {role} has ended: ended by .*as it had not answered http", events)


async def test_an_upload_whose_parts_were_complete_is_finished_by_the_next_control_plane(
    harmed: Platform, rough: RoughClient
) -> None:
    one = await rough.register("model", "cut", "1", MODEL_MANIFEST)
    tar = tar_of({"model.yaml": "name: cut\nversion: '1'\n", "weights": os.urandom(1_500_000)})
    upload, parts = await rough.send_parts(one, [tar[:700_000], tar[700_000:]])
    body = {"upload_id": upload, "parts": parts}
    completing = asyncio.create_task(rough.call("PATCH", f"{one}/complete_multipart_upload", body))
    await killed_and_back(harmed, "control-plane")
    with suppress(aiohttp.ClientError):
        await completing
    done = await rough.call("PATCH", f"{one}/finish_upload", {"status": "success", "reason": ""})
    assert done["upload_status"] == "success"


async def test_a_worker_that_is_killed_takes_its_replica_along_which_starts_again(
    harmed: Platform, rough: RoughClient, bento: Bento
) -> None:
    await rough.deploy("twins", bento.tag, Kitchen={"config_overrides": {"workers": 2}})
    await rough.settled("twins", "running")
    url = await harmed.url_of("twins")
    await kill(process_of((await call(f"{url}/cook"))["pid"]))

    async def restarted() -> bool:
        return [r["restarts"] for r in await harmed.replicas("twins", "ready")] == [1]

    await until(restarted)
    assert (await call(f"{url}/cook"))["version"] == "v1"
    await harmed.delete("twins")


async def test_ctrl_c_ends_the_replicas_of_a_control_plane_that_has_just_died(
    harmed: Platform, rough: RoughClient, bento: Bento
) -> None:
    await rough.deploy("orphan", bento.tag)
    await rough.settled("orphan", "running")
    await kill(harmed.pid("control-plane"))
    assert await harmed.stop() == 0
    assert harmed.leftovers() == []
    await harmed.start()
    await harmed.delete("orphan")


async def test_everything_outlives_up_and_the_next_up_takes_it_over_and_ends_it(
    harmed: Platform, url: str
) -> None:
    """The last that needs the steady deployment: it is deleted."""
    roles = ("agent", "gateway", "control-plane")
    before = [harmed.pid(role) for role in roles]
    async with under_load(CALLERS, f"{url}/cook", seconds=PACE_S) as load:
        up = harmed.pid()
        harmed.kill()
        assert not alive(up)
        await harmed.start()
    assert load.failures == []
    assert [harmed.pid(role) for role in roles] == before
    assert len({answer["pid"] for answer in load.answers}) == 1
    assert await harmed.stop() == 0
    assert harmed.leftovers() == []
    await harmed.start()
    await harmed.delete("steady")


async def test_tasks_outlive_the_gateway_the_control_plane_and_their_replicas(
    harmed: Platform, rough: RoughClient, shapes: Shapes
) -> None:
    bento = Bento.read(shapes.laptop.home / "bentos" / "tasks" / "v1")
    await push(harmed, bento)
    await rough.deploy("toiler", bento.tag, Tasks={"scaling": SLEEPY})
    await rough.settled("toiler", "running", "scaled-to-zero")
    toil = Tasks(f"{await harmed.url_of('toiler')}/toil")
    runs = await toil.submit(seconds=2)
    await toil.reached(runs, "in_progress")
    await killed_and_back(harmed, "control-plane")
    await toil.reached(runs, "completed")
    cut, waits = await toil.submit(seconds=2), await toil.submit(seconds=0)
    await toil.reached(cut, "in_progress")
    await killed_and_back(harmed, "gateway")
    await toil.reached(waits, "completed")
    assert (await toil.result(waits))["began"] > (await toil.result(runs))["ended"]
    await toil.reached(cut, "failed")
    await rough.call("POST", "/api/v2/deployments/toiler/terminate")
    await rough.settled("toiler", "terminated")
    assert await harmed.replicas("toiler") == []
    assert "ended while it ran" in (await toil.result(cut))["error"]["message"]
    assert "ended while it ran" in await harmed.hotplate("events", "toiler")
    assert "pid" in await toil.result(runs)
    await harmed.delete("toiler")
