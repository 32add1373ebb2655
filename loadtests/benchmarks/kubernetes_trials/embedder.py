"""The embedder by the stock client, from `bentoml deploy` to its first answer: on a cluster that
knows nothing of it, and on a node whose peer has its environment and its model."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from loadtests.benchmarks.kubernetes_trials.table import Row, bounded
from loadtests.harness.bounds import at_most, exactly
from loadtests.harness.child_process import ROOT, BenchmarkFailed
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
ASK_AGAIN_S = 0.1
ONE = {"Embedder": {"scaling": {"min_replicas": 1, "max_replicas": 1}}}
SENTENCE = "A cat sits on the mat."
KEPT = ("trees", "manifests", "disk")
"""The folders of an agent's data with what it has of others."""
FORGOTTEN = "forgotten"


@dataclass(frozen=True)
class _Deployed:
    """How long it took from the client's command on, and how its pod started."""

    answered_s: float
    ended_s: float
    """Until the client's command ended."""
    cold_start: ColdStart


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    source = shutil.copytree(EXAMPLE, folder / "embedder")
    async with release_user(folder) as user:
        token = await asyncio.to_thread(user.release.token, "cluster")
        agents = Agents(user.release.kubectl, RELEASE, folder, token)
        await save_model(user, source)
        try:
            await asyncio.to_thread(_forget, agents)
            async with user.closed(LACKS):
                first = await _deployed(user, source, NAMES[0])
            await user.delete(NAMES[0])
            async with user.closed(HAS):
                before = agents.moved_bytes(LACKS)
                second = await _deployed(user, source, NAMES[1])
                after = agents.moved_bytes(LACKS)
        finally:
            await user.delete(*NAMES)
            shutil.rmtree(Layout().node(LACKS) / FORGOTTEN, ignore_errors=True)
    origin, peers = (one - other for one, other in zip(after, before, strict=True))
    known = "embedder by the client, environment and model on the other node only"
    nothing = "embedder by the client, nothing on any node"
    return [
        bounded(f"{known}: deploy to answer, s", at_most(KNOWN_S), second.answered_s, 1),
        Row(f"{known}: deploy to the client's end, s", ours=second.ended_s),
        bounded(f"{known}: MiB of the origin", exactly(0), origin // 2**20, 0),
        Row(f"{known}: MiB from its peer", ours=peers / 2**20, digits=0),
        *_phases(known, second.cold_start),
        Row(f"{nothing}: deploy to answer, s", ours=first.answered_s),
        Row(f"{nothing}: deploy to the client's end, s", ours=first.ended_s),
        *_phases(nothing, first.cold_start),
    ]


async def _deployed(user: ReleaseUser, source: Path, name: str) -> _Deployed:
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        client = group.create_task(user.deploy(source, name, ONE))
        (vector,) = await _first_answer(user, name, client)
        answered_s = time.monotonic() - began
    ended_s = time.monotonic() - began
    assert len(vector) == 384
    cold_start = ColdStart.of((await user.deployment(name, "/cold_starts"))[0])
    return _Deployed(answered_s, ended_s, cold_start)


async def _first_answer(user: ReleaseUser, name: str, client: asyncio.Task[str]) -> Any:
    """As a caller gets it who asks from the beginning: the client itself looks every 10 s only,
    and ends after that. Raises BenchmarkFailed when the client has ended and nothing answers."""
    while True:
        over = client.done()
        try:
            return await user.call(name, "embed", sentences=[SENTENCE])
        except (BenchmarkFailed, TimeoutError, aiohttp.ClientError):
            if over:
                raise
            await asyncio.sleep(ASK_AGAIN_S)


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
