"""A platform at rest: what its pods take, and what a second look at deployments writes."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests.benchmarks.kubernetes_trials.table import Row, bounded
from loadtests.harness.bounds import exactly
from loadtests.harness.child_process import BenchmarkFailed
from loadtests.harness.installation import until
from loadtests.systems.release_user import NAMESPACE, ReleaseUser, release_user
from loadtests.systems.small_services import project
from tests.cluster.helm import RELEASE
from tests.cluster.layout import Layout
from tests.cluster.processes import pids
from tests.cluster.release import PARTS
from tests.support.memory import memory_bytes
from tests.support.services.bentos import SLEEPY

ASLEEP, LOOKED_AT = 20, 50
RESTS_S, LOOKS_S = 60.0, 30.0
TOGETHER = 5
SETTLED_S = 120.0
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
STILL = """class Still:
    @bentoml.api
    def greet(self) -> str:
        return "hello"
"""
_CPU = Path("/sys/fs/cgroup/cpuacct")


@dataclass(frozen=True)
class Taken:
    """By one pod, so far."""

    part: str
    node: str
    cpu_s: float
    memory_bytes: int


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    source = project(folder / "still", STILL)
    asleep, looked_at = (3, 5) if quick else (ASLEEP, LOOKED_AT)
    names = [f"bench-rest-{number}" for number in range(looked_at)]
    async with release_user(folder) as user:
        try:
            bento = await user.deploy(source, names[0], {"Still": {"scaling": SLEEPY}})
            await _made(user, names[1:asleep], bento)
            rows = await _at_rest(user, asleep, RESTS_S / 6 if quick else RESTS_S)
            await _made(user, names[asleep:], bento)
            rows += await _second_look(user, looked_at)
        finally:
            await user.delete(*names)
    return rows


async def _made(user: ReleaseUser, names: Sequence[str], bento: str) -> None:
    """Deploys the bento under these names, a few at a time, as each starts once; returns when all
    of them sleep."""
    for number in range(0, len(names), TOGETHER):
        some = names[number : number + TOGETHER]
        for name in some:
            body = {"name": name, "bento": bento, "services": {"Still": {"scaling": SLEEPY}}}
            await user.ask("/api/v2/deployments", "POST", body)

        async def asleep(some: Sequence[str] = some) -> bool:
            seen = [await user.deployment(name) for name in some]
            return all(each["serving"] and not each["live"]["replicas"] for each in seen)

        await until(asleep, SETTLED_S, f"{len(some)} deployments do not sleep")


async def _at_rest(user: ReleaseUser, asleep: int, rests_s: float) -> list[Row]:
    before = await _taken(user)
    await asyncio.sleep(rests_s)
    after = await _taken(user)
    rows = []
    for name in sorted(before.keys() & after.keys(), key=lambda name: after[name].part):
        pod = after[name]
        share = (pod.cpu_s - before[name].cpu_s) / rests_s * 1000
        figure = f"at rest, {asleep} asleep: {pod.part} on {pod.node}"
        rows.append(Row(f"{figure}: CPU, thousandths of a core", ours=share, digits=0))
        rows.append(Row(f"{figure}: memory, MiB", ours=pod.memory_bytes / 2**20, digits=0))
    return rows


async def _taken(user: ReleaseUser) -> Mapping[str, Taken]:
    """By pod of the release. Memory that several processes share counts in part (Pss)."""
    found = {}
    for namespace, part in PARTS:
        name = part.partition("/")[2]
        which = f"--selector=app.kubernetes.io/name={name}"
        for pod in await user.listed("pods", f"--namespace={namespace}", which):
            taken = await asyncio.to_thread(_taken_by, pod, name)
            found[pod["metadata"]["name"]] = taken
    return found


def _taken_by(pod: dict[str, Any], part: str) -> Taken:
    processes = pids(pod)
    lines = Path(f"/proc/{processes[0]}/cgroup").read_text().splitlines()
    (group,) = [line.split(":", 2)[2] for line in lines if "cpuacct" in line.split(":")[1]]
    # A container's group is in its pod's.
    usage_ns = int((_CPU / group.lstrip("/")).with_name("cpuacct.usage").read_text())
    memory = sum(memory_bytes(pid) for pid in processes)
    return Taken(part.removeprefix("hotplate-"), pod["spec"]["nodeName"], usage_ns / 1e9, memory)


async def _second_look(user: ReleaseUser, count: int) -> list[Row]:
    """A new control plane looks at them all, and what the release's accounts write meanwhile."""
    since = Layout().audit_log.stat().st_size
    namespace, part = PARTS[0]
    where = f"--namespace={namespace}"
    await user.kubectl("rollout", "restart", part, where)
    await user.kubectl("rollout", "status", part, where, "--timeout=120s")
    await asyncio.sleep(LOOKS_S)
    wrote, asked = await asyncio.to_thread(_writes, since)
    if not asked:
        raise BenchmarkFailed("the audit log has no request of the control plane")
    what = f"second look at {count} deployments"
    said = f" ({', '.join(sorted(wrote))})"[:150] if wrote else ""
    return [
        bounded(f"{what}: writing requests{said}", exactly(0), wrote.total(), 0),
        Row(f"{what}: other requests", ours=asked, digits=0),
    ]


def _writes(since: int) -> tuple[Counter[str], int]:
    """What accounts of the release have written in the organization's namespace and about it, by
    verb and kind, Events and Leases aside; and how many other requests they have made."""
    wrote, asked = Counter[str](), 0
    with Layout().audit_log.open("rb") as log:
        log.seek(since)
        for line in log:
            said = json.loads(line)
            if not said["user"]["username"].startswith(f"system:serviceaccount:{RELEASE}"):
                continue
            about = said.get("objectRef") or {}
            kind = about.get("resource", "")
            if NAMESPACE not in (about.get("namespace"), about.get("name")):
                continue  # of an organization that somebody else uses meanwhile
            if said["verb"] in WRITES and kind not in ("events", "leases"):
                wrote[f"{said['verb']} {kind}"] += 1
            else:
                asked += 1
    return wrote, asked
