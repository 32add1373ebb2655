"""What is changed and ended under 100 requests a second, and how many of them fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from loadtests.benchmarks.kubernetes_trials.table import Row, bounded
from loadtests.harness.bounds import exactly
from loadtests.harness.child_process import ROOT
from loadtests.harness.installation import until
from loadtests.systems.release_user import ReleaseUser, release_user
from tests.cluster.calls import calls_at
from tests.cluster.helm import RELEASE
from tests.cluster.release import PARTS

NAME = "bench-changes"
RATE_PER_S = 100.0
LASTS_S, QUICK_S = 60.0, 20.0
READY_S = 120.0
_CONTROL_PLANE, _GATEWAY, _AGENT = PARTS
Change = Callable[[ReleaseUser], Awaitable[None]]


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    lasts_s, rows = QUICK_S if quick else LASTS_S, list[Row]()
    async with release_user(folder) as user:
        try:
            two = {"min_replicas": 2, "max_replicas": 2}
            await user.deploy(ROOT / "examples" / "hello", NAME, {"Hello": {"scaling": two}})
            for what, change in CHANGES.items():
                rows += await _changed(user, what, change, lasts_s)
        finally:
            await user.delete(NAME)
    return rows


async def _changed(user: ReleaseUser, what: str, change: Change, lasts_s: float) -> list[Row]:
    """Calls that long, in which the change begins after a while, and ends."""
    began = time.monotonic()
    async with calls_at(RATE_PER_S, f"{NAME}.models.test") as calls:
        await asyncio.sleep(lasts_s / 6)
        await change(user)
        await asyncio.sleep(max(0.0, began + lasts_s - time.monotonic()))
    lasted_s = time.monotonic() - began
    failed = bounded(f"{what}: failed requests", exactly(0), len(calls.failures), 0)
    for _, failure in calls.failures[:3]:
        failed = Row(f"{failed.figure} ({failure})", failed.bound, failed.holds, failed.ours)
    asked = len(calls.answered) + len(calls.failures)
    return [failed, Row(f"{what}: requests/s", ours=asked / lasted_s, digits=0)]


async def _new_revision(user: ReleaseUser) -> None:
    """The same bento with another variable."""
    page = await user.ask(f"/api/v2/deployments/{NAME}")
    number = (await user.deployment(NAME))["revision"]
    changed = page["latest_revision"]["targets"][0]["config"]
    body = {
        "bento": (await user.deployment(NAME))["bento"],
        "services": changed["services"],
        "envs": [{"name": "CHANGED", "value": str(number)}],
    }
    await user.ask(f"/api/v2/deployments/{NAME}", "PUT", body)

    async def serving() -> bool:
        found = await user.deployment(NAME)
        return bool(found["serving"] == number + 1 and found["live"]["rollout"]["phase"] == "done")

    await until(serving, READY_S, "the new revision does not serve")


def _rolled(part: tuple[str, str]) -> Change:
    """A part of the release, each of its pods replaced."""

    async def roll(user: ReleaseUser) -> None:
        where, namespace = part[1], f"--namespace={part[0]}"
        await user.kubectl("rollout", "restart", where, namespace)
        await user.kubectl("rollout", "status", where, namespace, f"--timeout={READY_S:.0f}s")

    return roll


async def _agent_deleted(user: ReleaseUser) -> None:
    """The agent of the node on which a replica runs."""
    (replica, *_) = (await user.deployment(NAME))["live"]["replicas"]
    where = f"--namespace={RELEASE}-agents"
    node = f"--field-selector=spec.nodeName={replica['node']}"
    await user.kubectl("delete", "pod", where, node, "--wait=true", f"--timeout={READY_S:.0f}s")
    await user.kubectl("rollout", "status", _AGENT[1], where, f"--timeout={READY_S:.0f}s")


CHANGES: dict[str, Change] = {
    "new revision": _new_revision,
    "gateway Deployment rolled": _rolled(_GATEWAY),
    "an agent's pod deleted": _agent_deleted,
    "control plane restarted": _rolled(_CONTROL_PLANE),
}
