"""The control plane's pod deleted by force again and again while a deployment scales."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import aiohttp

from loadtests.benchmarks.kubernetes_trials.table import Row, bounded
from loadtests.harness.bounds import exactly
from loadtests.harness.child_process import BenchmarkFailed
from loadtests.harness.installation import until
from loadtests.systems.object_watch import Change, watched
from loadtests.systems.release_user import NAMESPACE, ReleaseUser, release_user
from loadtests.systems.small_services import project
from tests.cluster.helm import RELEASE

NAME = "bench-killed"
KILLS, QUICK_KILLS = 50, 5
MOST = 3
SCALING = {
    "min_replicas": 0,
    "max_replicas": MOST,
    "policy": {"scale_down_stabilization_window": 1},
}
SLOW = """class Slow:
    @bentoml.api
    async def work(self) -> str:
        await asyncio.sleep(0.5)
        return "done"
"""
BURST_S, PAUSE_S, CALLERS = 8.0, 6.0, 8
"""Asked so long by so many, then by none, over and over: so it scales up and down."""
ANSWER_S = 120.0
BACK_S = 120.0
FOLLOWED_S = 5.0
"""How long the cluster's own controllers may take to follow a new number."""
KNOWN_S = 60.0
"""How old the decision may be that a number follows: its own control plane may have been killed."""
_CONTROL_PLANE = "--selector=app.kubernetes.io/name=hotplate-control-plane"


@dataclass
class Answers:
    """Of the callers."""

    good: int = 0
    failures: list[str] = field(default_factory=list)


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    source = project(folder / "slow", SLOW, slots=1)
    kills, whose = QUICK_KILLS if quick else KILLS, f"hotplate.dev/deployment={NAME}"
    async with release_user(folder) as user:
        try:
            await user.deploy(source, NAME, {"Slow": {"scaling": SCALING}})
            async with (
                watched("pods", NAMESPACE, whose) as pods,
                watched("deployments", NAMESPACE, whose) as deployments,
            ):
                answers = Answers()
                calling = asyncio.create_task(_call_on(user, answers))
                back_s = [await _killed(user) for _ in range(kills)]
                calling.cancel()
                await asyncio.gather(calling, return_exceptions=True)
            decisions = await user.deployment(NAME, "/decisions")
        finally:
            await user.delete(NAME)
    wishes = wished(deployments.changes)
    decided = [
        (datetime.fromisoformat(each["at"]).timestamp(), int(each["desired"])) for each in decisions
    ]
    what = f"control plane's pod deleted by force {kills} times"
    said = f" ({answers.failures[0][:150]})" if answers.failures else ""
    return [
        bounded(
            f"{what}: pods beyond what was wished", exactly(0), beyond(pods.changes, wishes), 0
        ),
        bounded(
            f"{what}: numbers that no decision wished", exactly(0), undecided(wishes, decided), 0
        ),
        bounded(f"{what}: failed requests{said}", exactly(0), len(answers.failures), 0),
        Row(f"{what}: requests answered", ours=answers.good, digits=0),
        Row(f"{what}: changes of the number of pods", ours=len(wishes), digits=0),
        Row(f"{what}: until it serves again, s (slowest)", ours=max(back_s)),
    ]


async def _killed(user: ReleaseUser) -> float:
    """Kills it at some moment; how long it takes to serve again."""
    now = asyncio.get_running_loop().time
    await asyncio.sleep(random.uniform(0, 3))
    where = f"--namespace={RELEASE}"
    before = await _uids(user)
    await user.kubectl("delete", "pod", where, _CONTROL_PLANE, "--force", "--grace-period=0")
    killed_at = now()

    async def serves() -> bool:
        if before & await _uids(user):
            return False
        return await user.serves()

    await until(serves, BACK_S, "the control plane does not serve again")
    return now() - killed_at


async def _uids(user: ReleaseUser) -> set[str]:
    found = await user.listed("pods", f"--namespace={RELEASE}", _CONTROL_PLANE)
    return {pod["metadata"]["uid"] for pod in found}


async def _call_on(user: ReleaseUser, answers: Answers) -> None:
    """Calls in bursts until it is cancelled; what is under way then is not counted."""
    now = asyncio.get_running_loop().time

    async def ask_until(end: float) -> None:
        while now() < end:
            try:
                await user.call(NAME, "work", answer_s=ANSWER_S)
                answers.good += 1
            except (BenchmarkFailed, aiohttp.ClientError, TimeoutError) as error:
                answers.failures.append(repr(error))

    while True:
        end = now() + BURST_S
        await asyncio.gather(*(ask_until(end) for _ in range(CALLERS)))
        await asyncio.sleep(PAUSE_S)


def wished(changes: Sequence[Change]) -> list[tuple[float, int]]:
    """When the Deployment got another number of pods, and which."""
    found: list[tuple[float, int]] = []
    for change in changes:
        number = int(change.object["spec"]["replicas"])
        if not found or found[-1][1] != number:
            found.append((change.at, number))
    return found


def beyond(changes: Sequence[Change], wishes: Sequence[tuple[float, int]]) -> int:
    """How often there were more pods than any number that was wished within `FOLLOWED_S`."""
    alive: set[str] = set()
    wrong = 0
    for change in changes:
        meta, phase = change.object["metadata"], change.object["status"].get("phase")
        gone = change.kind == "DELETED" or "deletionTimestamp" in meta
        if gone or phase in ("Succeeded", "Failed"):
            alive.discard(meta["uid"])
        else:
            alive.add(meta["uid"])
        lasting = [
            number
            for (at, number), (until_at, _) in zip(
                wishes, [*wishes[1:], (float("inf"), 0)], strict=True
            )
            if at <= change.at + FOLLOWED_S and until_at >= change.at - FOLLOWED_S
        ]
        wrong += len(alive) > max(lasting, default=MOST)
    return wrong


def undecided(wishes: Sequence[tuple[float, int]], decided: Sequence[tuple[float, int]]) -> int:
    """How many numbers the Deployment was given that no decision then had wished."""
    return sum(
        not any(
            number == wish and at - KNOWN_S <= decided_at <= at + FOLLOWED_S
            for decided_at, number in decided
        )
        for at, wish in wishes[1:]
    )
