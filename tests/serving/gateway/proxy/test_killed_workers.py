"""The gateway in front of real replicas, which are killed at each phase of a request."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotplate.serving.gateway.protocol.routes import ReplicaRoute
from tests.support.gateway.callers import Caller
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until
from tests.support.replica.bentos import STREAM, write_bento
from tests.support.replica.replicas import Replica, started, workload

SOURCE = (
    """
    import asyncio, os, time
    import bentoml

    @bentoml.service(traffic={"concurrency": 1})
    class Echo:
        @bentoml.api
        def run(self, note: str, seconds: float = 0) -> int:
            with open(note, "a") as file:
                file.write("ran ")
            time.sleep(seconds)
            return os.getpid()
"""
    + STREAM
)


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Replica]]:
    folder = tmp_path_factory.mktemp("workers")
    bento = write_bento(folder / "bento", SOURCE)
    with started(folder, bento, workload()) as one, started(folder, bento, workload()) as two:
        for replica in (one, two):
            replica.get("/readyz")
        yield [one, two]


async def post(kitchen: Kitchen, replicas: list[Replica], path: str, **fields: object) -> Caller:
    """To the first that lives, while it has its slot."""
    live = [r for r in replicas if r.process.poll() is None]
    await kitchen.serve(
        replicas=tuple(
            ReplicaRoute(
                f"pid-{r.process.pid}",
                r.url.removeprefix("http://"),
                1,
                worker=True,
                version=f"main@{replicas.index(r)}",
            )
            for r in live
        )
    )
    caller = await kitchen.caller()
    body = json.dumps(fields).encode()
    caller.send(path, method="POST", body=body, Content_Type="application/json")
    return caller


async def test_an_abandoned_stream_is_cancelled_and_its_slot_comes_back(
    kitchen: Kitchen, replicas: list[Replica], tmp_path: Path
) -> None:
    cancelled = tmp_path / "cancelled"
    caller = await post(kitchen, replicas, "/stream", cancelled=str(cancelled))
    assert (await caller.head())[0] == 200
    assert await caller.chunk() == b"piece"
    caller.leave()
    await until(cancelled.exists)
    await until(lambda: kitchen.server.queue.in_flight == 0)


async def test_a_post_that_a_killed_replica_had_not_begun_runs_once_on_another(
    kitchen: Kitchen, replicas: list[Replica], tmp_path: Path
) -> None:
    """The replica is stopped, so its machine takes the request and it does not."""
    note = tmp_path / "note"
    victim, other = replicas
    os.kill(victim.process.pid, signal.SIGSTOP)
    caller = await post(kitchen, replicas, "/run", note=str(note))
    await until(lambda: kitchen.server.queue.in_flight == 1)
    await asyncio.sleep(0.1)  # for it to be there
    os.kill(victim.process.pid, signal.SIGKILL)
    answer = await caller.answer()
    assert (answer.status, json.loads(answer.body)) == (200, other.process.pid)
    assert note.read_text() == "ran "
    assert kitchen.server.counters.repeats == 1


async def test_a_post_that_a_killed_replica_had_begun_is_a_502_and_ran_once(
    kitchen: Kitchen, replicas: list[Replica], tmp_path: Path
) -> None:
    note = tmp_path / "note"
    victim = next(replica for replica in replicas if replica.process.poll() is None)
    caller = await post(kitchen, replicas, "/run", note=str(note), seconds=20)
    await until(note.exists)
    await until(lambda: note.read_text() == "ran ")
    os.kill(victim.process.pid, signal.SIGKILL)
    answer = await caller.answer()
    assert (answer.status, answer.error["code"]) == (502, "replica_failed")
    assert note.read_text() == "ran "
    assert victim.process.wait() == -signal.SIGKILL
    version = f"main@{replicas.index(victim)}"
    assert kitchen.server.demand().answers == {version: {"broken": 1}}
