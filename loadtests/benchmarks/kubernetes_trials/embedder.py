"""The embedder by the stock client, from `bentoml deploy` to its first answer: on a cluster that
knows nothing of it, and on a node whose peer has its environment and its model."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from loadtests.benchmarks.kubernetes_trials.table import Row, bounded
from loadtests.harness.bounds import at_most, exactly
from loadtests.harness.child_process import ROOT
from loadtests.harness.installation import save_model
from loadtests.systems.release_user import ReleaseUser, release_user
from tests.cluster.agents import Agents
from tests.cluster.helm import RELEASE
from tests.cluster.layout import Layout
from tests.support.end_to_end.cold_start import ColdStart

NAMES = ("bench-embedder-first", "bench-embedder-second")
HAS, LACKS = "node1", "node2"
EXAMPLE = ROOT / "examples" / "embedder"
KNOWN_S = 25.0
ONE = {"Embedder": {"scaling": {"min_replicas": 1, "max_replicas": 1}}}
SENTENCE = "A cat sits on the mat."
KEPT = ("trees", "manifests", "disk")
"""The folders of an agent's data with what it has of others."""
FORGOTTEN = "forgotten"


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    source = shutil.copytree(EXAMPLE, folder / "embedder")
    async with release_user(folder) as user:
        token = await asyncio.to_thread(user.release.token, "cluster")
        agents = Agents(user.release.kubectl, RELEASE, folder, token)
        await save_model(user, source)
        try:
            await asyncio.to_thread(_forget, agents)
            async with user.closed(LACKS):
                first_s, first = await _deployed(user, source, NAMES[0])
            await user.delete(NAMES[0])
            async with user.closed(HAS):
                before = agents.moved_bytes(LACKS)
                second_s, second = await _deployed(user, source, NAMES[1])
                after = agents.moved_bytes(LACKS)
        finally:
            await user.delete(*NAMES)
            shutil.rmtree(Layout().node(LACKS) / FORGOTTEN, ignore_errors=True)
    origin, peers = (one - other for one, other in zip(after, before, strict=True))
    known = "embedder by the client, environment and model on the other node only"
    return [
        bounded(f"{known}: deploy to answer, s", at_most(KNOWN_S), second_s, 1),
        bounded(f"{known}: MiB of the origin", exactly(0), origin // 2**20, 0),
        Row(f"{known}: MiB from its peer", ours=peers / 2**20, digits=0),
        *_phases(known, second),
        Row("embedder by the client, nothing on any node: deploy to answer, s", ours=first_s),
        *_phases("nothing on any node", first),
    ]


async def _deployed(user: ReleaseUser, source: Path, name: str) -> tuple[float, ColdStart]:
    """How long it took from the client's command to the first answer, and how its pod started."""
    began = time.monotonic()
    await user.deploy(source, name, ONE)
    (vector,) = await user.call(name, "embed", sentences=[SENTENCE])
    took_s = time.monotonic() - began
    assert len(vector) == 384
    return took_s, ColdStart.of((await user.deployment(name, "/cold_starts"))[0])


def _forget(agents: Agents) -> None:
    """A node loses what its agent has on disk and in memory, as one that was started anew.

    It is moved away and removed afterwards: where thousands of files have just been removed, ext4
    takes four times as long to make one.
    """
    node = Layout().node(LACKS)
    for kept in KEPT:
        for path in (node / "hotplate" / kept).iterdir():
            away = node / FORGOTTEN / kept / path.name
            away.parent.mkdir(parents=True, exist_ok=True)
            path.rename(away)
    agents.kill(LACKS)
    agents.await_ready()


def _phases(what: str, start: ColdStart) -> list[Row]:
    return [
        Row(f"{what}: of it {phase}, s", ours=length_s)
        for phase, length_s in start.length_s.items()
    ]
