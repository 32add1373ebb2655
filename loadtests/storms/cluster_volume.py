"""On a cluster, a node's agent reaches neither origin nor peers while pods wait for volumes.

What the pods of a new revision need is on the other node only. The kubelet asks for their volumes,
gives up after two minutes and asks again; the deployment says what it waits for, the replica of the
revision before answers meanwhile, and they become ready once the agent reaches others again, with
nothing started anew. The
release that `make cluster-install` has made is used and left as it was.
"""

from __future__ import annotations

import argparse
import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from loadtests.harness.child_process import BenchmarkFailed
from loadtests.harness.installation import until
from loadtests.harness.verdict import Verdict
from loadtests.systems.release_user import ReleaseUser, release_user
from loadtests.systems.small_services import project
from tests.cluster.calls import calls_at
from tests.cluster.helm import RELEASE
from tests.cluster.pod_network import unreachable

NAME = "held-volume"
RATE_PER_S = 20.0
HAS, LACKS = "node1", "node2"
"""The node that has what the pod needs, and the one that it is to start on."""
AGAIN_S = 60.0
"""How long the pods may take to be ready when the agent reaches others again: a kubelet pauses
between its attempts."""
_GREETS = """class Greets:
    @bentoml.api
    def greet(self, name: str) -> str:
        return f"Hello, {name}!"
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds", type=float, default=150.0, help="how long the volume is held back (150)"
    )


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    async with release_user(folder) as user:
        return await storm(user, folder, flags.seconds)


async def storm(user: ReleaseUser, folder: Path, seconds: float) -> Verdict:
    """On a release that is ready."""
    verdict = Verdict()
    source = project(folder / "greets", f"# {folder.name}\n{_GREETS}")
    try:
        async with user.closed(LACKS):
            await user.deploy(source, NAME, {"Greets": {"scaling": _exactly(1)}})
        async with AsyncExitStack() as stack:
            calls = await stack.enter_async_context(calls_at(RATE_PER_S, f"{NAME}.models.test"))
            await stack.enter_async_context(user.closed(HAS))
            agent = await _agent(user)
            with unreachable(agent, "agent"):
                await _scale(user, 2)
                await asyncio.sleep(seconds)
                states, said = await _states(user)
            verdict.expect(
                states == ["ready", "starting", "starting"],
                f"after {seconds:.0f} s replicas are {states}",
            )
            await until(lambda: _both_ready(user), AGAIN_S, "the pods do not become ready")
            verdict.expect(
                await _restarts(user) == _restarts_of(agent), "the agent was started anew"
            )
    finally:
        await user.delete(NAME)
    verdict.figures |= {
        "held back, s": seconds,
        "meanwhile it was said": said,
        "requests answered": len(calls.answered),
        "requests failed": len(calls.failures),
    }
    verdict.expect(not calls.failures, f"requests failed: {calls.failures[:3]}")
    return verdict


def _exactly(replicas: int) -> dict[str, int]:
    return {"min_replicas": replicas, "max_replicas": replicas}


async def _scale(user: ReleaseUser, replicas: int) -> None:
    """To so many, all of a new revision."""
    services = {"Greets": {"scaling": _exactly(replicas)}}
    body = {"bento": (await user.deployment(NAME))["bento"], "services": services}
    await user.ask(f"/api/v2/deployments/{NAME}", "PUT", body)


async def _states(user: ReleaseUser) -> tuple[list[str], str]:
    """Of the replicas, and what is said of those that wait."""
    replicas = (await user.deployment(NAME))["live"]["replicas"]
    said = "; ".join(each["reason"] for each in replicas if each["state"] != "ready")
    return sorted(each["state"] for each in replicas), said


async def _both_ready(user: ReleaseUser) -> bool:
    return (await _states(user))[0] == ["ready", "ready"]


async def _agent(user: ReleaseUser) -> dict[str, Any]:
    where = (f"--namespace={RELEASE}-agents", f"--field-selector=spec.nodeName={LACKS}")
    found = await user.listed("pods", *where)
    if len(found) != 1:
        raise BenchmarkFailed(f"{LACKS} has {len(found)} agents")
    return found[0]


async def _restarts(user: ReleaseUser) -> int:
    return _restarts_of(await _agent(user))


def _restarts_of(pod: dict[str, Any]) -> int:
    return int(pod["status"]["containerStatuses"][0]["restartCount"])
