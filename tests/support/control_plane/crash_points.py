"""A control plane dies after every single thing that it writes or starts; the next one goes on."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hotplate.platform.store.records import Kind
from hotplate.serving.gateway.protocol.routes import RouteDemand
from tests.support.control_plane.cloud import MANIFEST, Cloud, put, tar_of, versions
from tests.support.control_plane.code_syncs import code_space, sync, synced
from tests.support.control_plane.controller_world import config
from tests.support.control_plane.crashes import Life
from tests.support.control_plane.mortal_plane import Installation, Plane, Work
from tests.support.patience import until

ONE_SLOT = {"traffic": {"concurrency": 1}}
PAIR = {
    **MANIFEST,
    "services": [
        {"name": "Echo", "config": ONE_SLOT, "dependencies": [{"service": "Back"}]},
        {"name": "Back", "config": ONE_SLOT},
    ],
}
BENTO_YAML = b"name: echo\nversion: v3\n"
WEIGHTS = bytes(range(256)) * 12
MODEL_TAR = tar_of({"model.yaml": "name: bert\nversion: '1'\n", "weights": WEIGHTS})


async def nothing(_: Plane) -> None:
    pass


@dataclass(frozen=True)
class Operation:
    """What a user or the load does, and the state in which it must end whatever happens."""

    name: str
    least: int
    """The least number of moments at which the control plane can die in it."""
    act: Work
    rests: Callable[[Plane], Awaitable[bool]]
    before: Work = nothing
    takes_over: bool = False
    """Whether it is what one does that begins to act, from its term on."""


async def pushed(plane: Plane) -> None:
    for version in ("v1", "v2"):
        await plane.cloud.push_bento(version=version)


async def running(plane: Plane) -> None:
    await pushed(plane)
    await plane.deploy()
    await until(lambda: plane.serves("v1"))


async def asleep(plane: Plane) -> None:
    await pushed(plane)
    await plane.deploy(least=0)
    await until(lambda: plane.serves("v1", replicas=0, status="scaled-to-zero"))


async def busy(plane: Plane) -> None:
    await asleep(plane)
    await plane.demand(RouteDemand(in_flight=1, queued=2, service_s=60))
    await until(lambda: plane.serves("v1", replicas=3))


async def drain(plane: Plane) -> None:
    """All but one replica are idle; the last one becomes so when the others are gone."""
    last = sorted(plane.engine.found)[:1]

    async def drained() -> bool:
        return list(plane.engine.found) in (last, [])

    if last:  # else an earlier life has come so far
        await plane.demand(RouteDemand(in_flight=1, busy=dict.fromkeys(last, 1)))
        await until(drained)
    await plane.demand(RouteDemand())


async def push_bento(plane: Plane) -> None:
    tar = tar_of({"bento.yaml": BENTO_YAML})
    await plane.cloud.register("bento", "echo", "v3")
    await plane.call("PATCH", f"{versions('bento', 'echo')}/v3/start_upload")
    await plane.call("PUT", f"{versions('bento', 'echo')}/v3/upload", data=tar)


async def push_in_parts(plane: Plane) -> None:
    one = f"{versions('model', 'bert')}/1"
    registered = await plane.cloud.register("model", "bert", "1")
    if registered["upload_status"] == "success":  # the stock client looks too
        return
    if f"{one}/complete_multipart_upload" not in plane.promised:
        upload, parts = await plane.cloud.send_parts(one, [MODEL_TAR[:4000], MODEL_TAR[4000:]])
        body = {"upload_id": upload, "parts": parts}
        await plane.call("PATCH", f"{one}/complete_multipart_upload", body)
    await plane.call("PATCH", f"{one}/finish_upload", {"status": "success", "reason": ""})


async def push_signed(plane: Plane) -> None:
    one = f"{versions('model', 'bert')}/1"
    registered = await plane.cloud.register("model", "bert", "1")
    if registered["upload_status"] == "success":  # the stock client looks too
        return
    await plane.call("PATCH", f"{one}/start_upload")
    signed = await plane.cloud.call("PATCH", f"{one}/presign_upload_url")
    await put(signed["presigned_upload_url"], MODEL_TAR)
    await plane.call("PATCH", f"{one}/finish_upload", {"status": "success", "reason": ""})


async def pair_pushed(plane: Plane) -> None:
    await plane.cloud.push_bento(version="v4", manifest=PAIR | {"version": "v4"})


async def replace(plane: Plane) -> None:
    await plane.call("DELETE", ONE_ECHO)
    await plane.deploy(bento="echo:v2")


async def terminate_and_update(plane: Plane) -> None:
    await plane.call("POST", "/api/v2/deployments/echo/terminate")
    await plane.update("echo:v2")


async def with_canary(plane: Plane) -> None:
    await running(plane)
    version = {"bento": "echo:v2", "weight": 10, **config(1, 1)}
    await plane.update("echo:v1", canary={"versions": {"next": version}})
    await until(lambda: plane.shares() == {"next": 10})


async def left_half_done(plane: Plane) -> None:
    """What one that dies has answered and not done: an update, while another one goes on."""
    await running(plane)
    await plane.update("echo:v2", envs=SLOW)
    await until(lambda: len(plane.engine.replicas()) == 2)


async def taken_over(plane: Plane) -> None:
    plane.engine.hasten()


async def as_was_promised(plane: Plane) -> bool:
    """The second replica of all that were ever made serves: none was made twice."""
    return await plane.serves("v2") and next(iter(plane.engine.found)).endswith("-2")


async def promoted(plane: Plane) -> bool:
    return await plane.serves("v2") and plane.shares() == {}


async def twice_deployed(plane: Plane) -> None:
    await running(plane)
    await plane.update("echo:v2")
    await until(lambda: plane.serves("v2"))


async def restarted(plane: Plane) -> bool:
    return await plane.serves("v1") and {r.key.revision for r in plane.engine.replicas()} != {1}


async def pause_and_resume(plane: Plane) -> None:
    """What was paused stays so, whoever dies, until it is let go on."""
    await plane.update("echo:v2", envs=SLOW)
    await plane.roll("pause")
    if "resume" not in plane.promised:
        assert (await plane.deployment()).latest.paused
    plane.promised.add("resume")
    plane.engine.hasten()
    await plane.roll("resume")


async def abort(plane: Plane) -> None:
    await plane.update("echo:v2", envs=SLOW)
    await plane.roll("abort")


async def two_organizations(plane: Plane) -> None:
    await running(plane)
    async with Cloud(plane.cloud.server, plane.store, "beta", name="bob") as bob:
        await bob.push_bento()
        await bob.deploy(**config(1, 1))
        await until(lambda: len(plane.engine.replicas()) == 2)


async def alone(plane: Plane) -> bool:
    """Nothing is left of the other organization, and of its people."""
    organizations = await plane.store.run(plane.store.organizations.all)
    names = [organization.name for organization in organizations]
    return "beta" not in names and await plane.serves("v1")


BROKEN = [{"name": "BROKEN", "value": "yes"}]
SLOW = [{"name": "SLOW", "value": "yes"}]
BETA = "/api/v1/hotplate/organizations/beta?force=true"
ONE_ECHO = "/api/v2/deployments/echo"
OPERATIONS = [
    Operation("create", 12, lambda p: p.deploy(), lambda p: p.serves("v1"), pushed),
    Operation("update", 14, lambda p: p.update("echo:v2"), lambda p: p.serves("v2"), running),
    Operation(
        "update that fails",
        13,
        lambda p: p.update("echo:v2", envs=BROKEN),
        lambda p: p.serves("v1", status="failed"),
        running,
    ),
    Operation("terminate, update", 18, terminate_and_update, lambda p: p.serves("v2"), running),
    Operation("delete, deploy", 21, replace, lambda p: p.serves("v2"), running),
    Operation(
        "two services",
        14,
        lambda p: p.deploy(bento="echo:v4"),
        lambda p: p.serves("v4", services=2),
        pair_pushed,
    ),
    Operation(
        "scale up",
        16,
        lambda p: p.demand(RouteDemand(in_flight=1, queued=2, service_s=60)),
        lambda p: p.serves("v1", replicas=3),
        asleep,
    ),
    Operation(
        "drain", 14, drain, lambda p: p.serves("v1", replicas=0, status="scaled-to-zero"), busy
    ),
    Operation("promote", 32, lambda p: p.roll("promote", version="next"), promoted, with_canary),
    Operation("undo", 20, lambda p: p.roll("undo", to=1), lambda p: p.serves("v1"), twice_deployed),
    Operation("restart", 20, lambda p: p.roll("restart"), restarted, running),
    Operation("pause, resume", 26, pause_and_resume, lambda p: p.serves("v2"), running),
    Operation("abort", 14, abort, lambda p: p.serves("v1", status="failed"), running),
    Operation(
        "delete an organization",
        24,
        lambda p: p.call("DELETE", BETA),
        alone,
        two_organizations,
    ),
    Operation(
        "upload",
        14,
        push_bento,
        lambda p: p.holds(Kind.BENTO, "echo", "v3", BENTO_YAML),
    ),
    Operation(
        "upload in parts", 18, push_in_parts, lambda p: p.holds(Kind.MODEL, "bert", "1", WEIGHTS)
    ),
    Operation(
        "upload to a link", 16, push_signed, lambda p: p.holds(Kind.MODEL, "bert", "1", WEIGHTS)
    ),
    Operation("takeover", 24, taken_over, as_was_promised, left_half_done, takes_over=True),
    Operation("sync of files", 20, sync, synced, code_space),
]


async def deaths(
    folder: Path, operation: Operation, tried: Callable[[int], bool] = lambda _: True
) -> int:
    """Dies at each moment of the operation that is `tried`, of 1, 2, …; how often it died.

    Raises AssertionError if the next control plane does not complete the operation.
    """
    installed = Installation(folder / "before")
    installed.folder.mkdir()
    assert await installed.live(Life(), operation.before)
    died = 0
    for effects in filter(tried, itertools.count(1)):
        harmed = installed.again(folder / f"{effects}")
        life = Life(effects)
        work = partial(done, operation=operation)
        if await harmed.live(life, work, takes_over=operation.takes_over):
            break
        died += 1
        try:
            assert await harmed.live(Life(), lambda plane: done(plane, operation))
            if harmed.leftovers:  # the control plane that starts next removes them
                assert await harmed.live(Life(), harmed.is_cleaned)
        except (AssertionError, TimeoutError) as error:
            raise AssertionError(f"dead after {life.last}, its effect {effects}") from error
    return died


async def done(plane: Plane, operation: Operation) -> None:
    await operation.act(plane)
    await until(lambda: operation.rests(plane))
