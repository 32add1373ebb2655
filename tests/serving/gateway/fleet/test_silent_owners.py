"""An owner of which nothing is heard for a while, in front of a real worker: what was passed on to
it runs once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hotplate.serving.gateway.protocol.routes import ReplicaRoute
from tests.serving.gateway.fleet.test_network import Cluster
from tests.serving.gateway.fleet.test_several_gateways import Slow
from tests.support.gateway.callers import Caller
from tests.support.gateway.control_planes import ControlPlane
from tests.support.gateway.gateway_processes import GatewayProcess
from tests.support.patience import until
from tests.support.replica.bentos import write_bento
from tests.support.replica.replicas import Replica, started, workload

SLOTS = 1
SOURCE = """
    import bentoml

    @bentoml.service(traffic={"concurrency": 1})
    class Echo:
        @bentoml.api
        def work(self, note: str, gate: str = "") -> str:
            with open(note, "a") as file:
                file.write("begun\\n")
            return open(gate).read() if gate else "done"

        @bentoml.api
        def stream(self, note: str, gate: str):
            with open(note, "a") as file:
                file.write("begun\\n")
            yield "begun"
            yield open(gate).read()
"""


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    folder = tmp_path_factory.mktemp("silent")
    with started(folder, write_bento(folder / "bento", SOURCE), workload()) as replica:
        replica.get("/readyz")
        yield replica


@pytest.fixture
async def gateways(tmp_path: Path, plane: ControlPlane, replica: Replica) -> AsyncIterator[Cluster]:
    """Two, before the worker."""
    address = replica.url.removeprefix("http://")
    cluster = Cluster(tmp_path, plane, cast("Slow", SimpleNamespace(address=address)))
    cluster.replica = ReplicaRoute("r1", address, SLOTS, worker=True, uid=replica.uid)
    async with cluster.stack:
        await cluster.start()
        await cluster.start()
        await cluster.serve()
        yield cluster


async def work(
    cluster: Cluster, gateway: GatewayProcess, path: str = "/work", **fields: object
) -> Caller:
    caller = await cluster.caller(gateway)
    body = json.dumps(fields, default=str).encode()
    caller.send(path, method="POST", body=body, Content_Type="application/json")
    return caller


def lines(note: Path) -> int:
    return len(note.read_text().splitlines()) if note.exists() else 0


async def test_what_it_had_not_begun_when_it_was_stopped_it_does_not_begin_when_it_goes_on(
    gateways: Cluster, tmp_path: Path
) -> None:
    owner, other = await gateways.owner()
    note, last = tmp_path / "note", tmp_path / "last"
    owner.process.send_signal(signal.SIGSTOP)
    answer = await (await work(gateways, other, note=note)).answer()
    assert (answer.status, answer.body) == (200, b"done")
    owner.process.send_signal(signal.SIGCONT)
    await gateways.owner()
    later = await (await work(gateways, owner, note=last)).answer()
    assert (later.status, lines(last)) == (200, 1), "it serves again, behind what it was passed"
    assert lines(note) == 1


async def test_what_has_begun_is_not_begun_again_and_says_so(
    gateways: Cluster, tmp_path: Path
) -> None:
    owner, other = await gateways.owner()
    note, gate = tmp_path / "note", tmp_path / "gate"
    os.mkfifo(gate)
    running = await work(gateways, other, note=note, gate=gate)
    await until(lambda: lines(note) == 1)
    waiting = await work(gateways, other, note=tmp_path / "second")
    await until(lambda: _queued(owner))
    owner.process.send_signal(signal.SIGSTOP)
    answer = await running.answer()
    assert answer.status == 502
    assert "may have run the request" in answer.error["message"]
    await asyncio.to_thread(gate.write_text, "through")
    assert (await waiting.answer()).status == 200
    owner.process.send_signal(signal.SIGCONT)
    await gateways.owner()
    assert (lines(note), lines(tmp_path / "second")) == (1, 1)


async def test_what_is_being_answered_is_cut_and_not_begun_again(
    gateways: Cluster, tmp_path: Path
) -> None:
    owner, other = await gateways.owner()
    note, gate = tmp_path / "note", tmp_path / "gate"
    os.mkfifo(gate)
    caller = await work(gateways, other, "/stream", note=note, gate=gate)
    status, _ = await caller.head()
    assert (status, await caller.chunk()) == (200, b"begun")
    owner.process.send_signal(signal.SIGSTOP)
    assert await caller.reader.read() == b"", "nothing else stands in an answer"
    await asyncio.to_thread(gate.write_text, "through")
    last = tmp_path / "last"
    assert (await (await work(gateways, other, note=last)).answer()).status == 200
    owner.process.send_signal(signal.SIGCONT)
    await gateways.owner()
    assert (lines(note), lines(last)) == (1, 1)


async def _queued(owner: GatewayProcess) -> bool:
    _, queue = await owner.admin("/deployments/acme/chat/queue")
    found: dict[str, Any] = queue
    return bool(found["queued"] == 1)
