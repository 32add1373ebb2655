"""On a cluster, the control plane dies at moments of a deploy, a scale-up, a roll-out and a delete.

Each is asked of the API and the control plane's process is killed by SIGKILL at some moment of it;
its pod goes with it, so that Kubernetes starts another one at once. What was acknowledged has to
come about when it is back, with as many pods as are wanted and nothing left over. Meanwhile a
deployment of two replicas is called, and no request of its callers may fail. The release that
`make cluster-install` has made is used and left as it was.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadtests.harness.child_process import ROOT, BenchmarkFailed
from loadtests.harness.installation import until
from loadtests.harness.verdict import Verdict
from loadtests.systems.release_user import NAMESPACE, ReleaseUser, release_user
from tests.cluster.calls import calls_at
from tests.cluster.helm import RELEASE
from tests.cluster.processes import kill

STEADY, CHANGING = "kills-steady", "kills-changing"
RATE_PER_S = 20.0
REPLICAS = 2
"""What the deployment is scaled up to, from one."""
BACK_S, DONE_S = 120.0, 120.0
ASKED_AGAIN_S = 0.2
_CONTROL_PLANE = "--selector=app.kubernetes.io/name=hotplate-control-plane"
_WHOSE = f"--selector=hotplate.dev/deployment={CHANGING}"
_WHERE = f"--namespace={NAMESPACE}"


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=50, help="in turn of each operation (50)")
    parser.add_argument(
        "--seed", type=int, default=1, help="the same seed kills at the same moments (1)"
    )


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    async with release_user(folder) as user:
        return await storm(user, flags.kills, random.Random(flags.seed))


async def storm(user: ReleaseUser, kills: int, rng: random.Random) -> Verdict:
    """On a release that is ready."""
    verdict = Verdict()
    try:
        scaling = {"Hello": {"scaling": {"min_replicas": 2, "max_replicas": 2}}}
        bento = await user.deploy(ROOT / "examples" / "hello", STEADY, scaling)
        trial = Trial(user, bento, verdict)
        async with calls_at(RATE_PER_S, f"{STEADY}.models.test") as calls:
            for number in range(kills):
                if verdict.broken:  # what comes next stands on it
                    break
                await _strike(trial, OPERATIONS[number % len(OPERATIONS)], number, rng)
    finally:
        await user.delete(CHANGING, STEADY)
    verdict.figures |= {
        "kills": trial.kills,
        "kills before all was done": trial.under_way,
        "until it serves again, s (slowest)": max(trial.back_s, default=0.0),
        "requests answered": len(calls.answered),
        "requests failed": len(calls.failures),
    }
    verdict.expect(not calls.failures, f"requests failed: {calls.failures[:3]}")
    verdict.expect(trial.under_way > 0, "nothing was tried: no kill came before all was done")
    return verdict


@dataclass
class Trial:
    """The deployment that changes, and what was found."""

    user: ReleaseUser
    bento: str
    verdict: Verdict
    kills: int = 0
    under_way: int = 0
    back_s: list[float] = field(default_factory=list)

    def body(self, replicas: int, value: str) -> dict[str, Any]:
        """A configuration, as the client sends it."""
        scaling = {"min_replicas": replicas, "max_replicas": replicas}
        envs = [{"name": "CHANGED", "value": value}]
        return {"bento": self.bento, "services": {"Hello": {"scaling": scaling}}, "envs": envs}

    async def runs(self, replicas: int, value: str) -> bool:
        """Whether exactly so many pods are ready, all of them with that configuration."""
        found = await self.user.ask(f"/api/v2/deployments/{CHANGING}")
        config = found["latest_revision"]["targets"][0]["config"]
        pods = await self.user.listed("pods", _WHOSE, _WHERE)
        numbers = {pod["metadata"]["labels"]["hotplate.dev/revision"] for pod in pods}
        ready = [pod for pod in pods if _is_ready(pod)]
        return (
            found["status"] == "running"
            and config["envs"] == [{"name": "CHANGED", "value": value}]
            and len(pods) == len(ready) == replicas
            and len(numbers) == 1
        )

    async def is_gone(self) -> bool:
        """Whether nothing is left of it."""
        return not await self.user.listed("deployments,configmaps,secrets,pods", _WHOSE, _WHERE)


@dataclass(frozen=True)
class Operation:
    """What is asked of the API, and when it has come about."""

    name: str
    lasts_s: float
    """About; the kill comes within that time."""
    ask: Callable[[Trial], Awaitable[Any]]
    done: Callable[[Trial], Awaitable[bool]]
    repeated: int = 404
    """What the API answers when it is asked again for what was done already."""


_PATH = f"/api/v2/deployments/{CHANGING}"
OPERATIONS = (
    Operation(
        "deploy",
        4.0,
        lambda trial: trial.user.ask(
            "/api/v2/deployments", "POST", {"name": CHANGING, **trial.body(1, "first")}
        ),
        lambda trial: trial.runs(1, "first"),
        repeated=409,
    ),
    Operation(
        "scale-up",
        4.0,
        lambda trial: trial.user.ask(_PATH, "PUT", trial.body(REPLICAS, "first")),
        lambda trial: trial.runs(REPLICAS, "first"),
    ),
    Operation(
        "roll-out",
        6.0,
        lambda trial: trial.user.ask(_PATH, "PUT", trial.body(REPLICAS, "second")),
        lambda trial: trial.runs(REPLICAS, "second"),
    ),
    Operation(
        "delete",
        6.0,
        lambda trial: trial.user.ask(_PATH, "DELETE"),
        Trial.is_gone,
    ),
)


async def _strike(trial: Trial, operation: Operation, number: int, rng: random.Random) -> None:
    """One operation, and a kill at some moment of it."""
    asking = asyncio.create_task(_acknowledged(trial, operation))
    after_s = rng.uniform(0, operation.lasts_s)
    await asyncio.sleep(after_s)
    was_done = asking.done() and await _holds(trial, operation)
    back_s = await _kill(trial)
    trial.under_way += not was_done
    what = f"kill {number + 1}, {after_s:.2f} s after the {operation.name} was asked for"
    try:
        async with asyncio.timeout(DONE_S):
            await asking
        await until(lambda: _holds(trial, operation), DONE_S, f"{what}: it does not come about")
    except (BenchmarkFailed, TimeoutError) as error:
        trial.verdict.broken.append(f"{what}: {error!r}")
    print(f"{what}: serves again after {back_s:.1f} s", flush=True)


async def _acknowledged(trial: Trial, operation: Operation) -> None:
    """Asks until the API says that it is done: it is away for a while."""
    while True:
        try:
            await operation.ask(trial)
            return
        except BenchmarkFailed as error:
            if f": {operation.repeated} " in str(error):
                return
        await asyncio.sleep(ASKED_AGAIN_S)


async def _holds(trial: Trial, operation: Operation) -> bool:
    try:
        return await operation.done(trial)
    except BenchmarkFailed:  # the API is away
        return False


async def _kill(trial: Trial) -> float:
    """Kills the control plane's process and removes its pod; how long it takes to serve again."""
    user, now = trial.user, asyncio.get_running_loop().time
    where = f"--namespace={RELEASE}"
    (pod,) = [
        each
        for each in await user.listed("pods", where, _CONTROL_PLANE)
        if "deletionTimestamp" not in each["metadata"]
    ]
    await asyncio.to_thread(kill, pod, "control-plane")
    trial.kills += 1
    killed_at, name = now(), pod["metadata"]["name"]
    await user.kubectl("delete", "pod", name, where, "--force", "--grace-period=0")

    await until(user.serves, BACK_S, "the control plane does not serve again")
    trial.back_s.append(now() - killed_at)
    return now() - killed_at


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]
