"""An owner that is killed while our worker has what another gateway had passed on to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hotplate.serving.gateway.fleet.members import rendezvous_owner
from hotplate.serving.gateway.fleet.peer_queries import RECALL_PATH, RUNNING_PATH
from hotplate.serving.gateway.http1.response_reader import STARTED
from hotplate.serving.gateway.protocol.routes import ReplicaRoute, Route, RouteTable
from tests.serving.gateway.test_process import Process
from tests.support.gateway.backends import Backend, Connection, Request
from tests.support.gateway.callers import Caller
from tests.support.gateway.control_planes import ControlPlane
from tests.support.patience import until
from tests.support.ports import free_port

NAME = "acme/echo"
FULL = b"HTTP/1.1 100 Full\r\n\r\n"
IDLE = json.dumps({"running": 0, "websockets": 0, "tasks": 0}).encode()


class Worker(Backend):
    """One slot of our worker; what it does with the first request is the test's."""

    def __init__(self) -> None:
        super().__init__()
        self.on("/work", self._work)
        self.on(RUNNING_PATH, self._running)
        self.below(RECALL_PATH, self._recall)
        self.began = False
        """What it says of the first request."""
        self.has_first, self.asked = asyncio.Event(), 0
        self.first_answer = b""
        """What it says to the first request, once the gate is set."""

    async def _work(self, request: Request, connection: Connection) -> None:
        self.asked += 1
        if self.asked > 1:
            connection.answer(b"again")
            return
        self.has_first.set()
        await self.gate.wait()
        connection.writer.write(self.first_answer)
        await connection.reader.read()  # the gateway ends it, or has ended

    async def _recall(self, request: Request, connection: Connection) -> None:
        passed = request.target.removeprefix(RECALL_PATH).split(",")
        connection.answer(json.dumps({"begun": passed if self.began else []}).encode())
        connection.writer.close()

    async def _running(self, request: Request, connection: Connection) -> None:
        connection.answer(IDLE)
        connection.writer.close()


class Two:
    """An owner and another gateway, each with an address of its own, before the worker."""

    def __init__(self, plane: ControlPlane, worker: Worker) -> None:
        self._plane, self._worker = plane, worker
        self._ports = [free_port(), free_port()]
        self.processes: list[Process] = []
        self._owner = 0

    async def serve(self, number: int, version: int, replicas: int = 1) -> None:
        replica = ReplicaRoute("r1", self._worker.address, 1, worker=True)
        route = Route(NAME, "127.0.0.1", self._ports[number], replicas=(replica,)[:replicas])
        table = RouteTable(version, (route,))
        await self._plane.sockets[number].send_str(json.dumps(table.to_json()))

    async def agree(self) -> bool:
        """Whether they know each other and both name the owner that it will stay."""
        healths = [await self._health(number) for number in range(2)]
        ids = [health["gateway"] for health in healths]
        owner = rendezvous_owner(NAME, ids)
        self._owner = ids.index(owner)
        return all(
            len(health["peers"]) == 1 and health["owners"].get(NAME) == owner for health in healths
        )

    async def caller(self) -> Caller:
        """Of the gateway that passes on."""
        return await Caller.to(self._ports[1 - self._owner])

    async def lose_replica(self) -> None:
        """The owner no longer knows the worker."""
        await self.serve(self._owner, 2, replicas=0)

        async def known() -> bool:
            return bool((await self._health(self._owner))["version"] == 2)

        await until(known)

    async def waits(self) -> bool:
        """Whether a request waits at the owner."""
        _, text = await self.processes[self._owner].admin(f"/deployments/{NAME}/queue")
        return bool(json.loads(text)["queued"] == 1)

    async def kill_owner(self) -> None:
        process = self.processes[self._owner].process
        process.kill()
        assert await process.wait() < 0

    async def _health(self, number: int) -> dict[str, Any]:
        health: dict[str, Any] = json.loads((await self.processes[number].admin("/healthz"))[1])
        return health


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    async with Worker() as worker:
        yield worker


@asynccontextmanager
async def two_gateways(plane: ControlPlane, worker: Worker, folder: Path) -> AsyncIterator[Two]:
    two = Two(plane, worker)
    async with Process.start(plane.url, folder / "one") as first:
        await until(lambda: len(plane.sockets) == 1)
        async with Process.start(plane.url, folder / "two") as second:
            await until(lambda: len(plane.sockets) == 2)
            two.processes = [first, second]
            for number in range(2):
                await two.serve(number, 1)
            await until(two.agree)
            yield two


@pytest.mark.parametrize(
    ("method", "began", "runs"), [("POST", True, 1), ("POST", False, 2), ("PUT", True, 2)]
)
async def test_what_may_run_once_does_not_run_again_though_nobody_could_tell_that_it_began(
    plane: ControlPlane, worker: Worker, tmp_path: Path, method: str, began: bool, runs: int
) -> None:
    """The worker begins with it, or does not, as the owner dies, who was to pass its word on."""
    worker.first_answer, worker.began = STARTED if began else b"", began
    async with two_gateways(plane, worker, tmp_path) as two:
        caller = await two.caller()
        caller.send("/work", method=method, body=b"x")
        await worker.has_first.wait()
        await two.kill_owner()
        worker.gate.set()
        answer = await caller.answer()
        caller.leave()
    assert worker.asked == runs
    assert answer.status == (502 if runs == 1 else 200), answer
    if runs == 1:
        assert "the gateway that has its queue ended the connection" in answer.error["message"]


async def test_what_a_worker_gave_back_goes_to_the_next_owner(
    plane: ControlPlane, worker: Worker, tmp_path: Path
) -> None:
    worker.first_answer = FULL
    async with two_gateways(plane, worker, tmp_path) as two:
        caller = await two.caller()
        caller.send("/work", method="POST", body=b"x")
        await worker.has_first.wait()
        await two.lose_replica()
        worker.gate.set()
        await until(two.waits)
        await two.kill_owner()
        answer = await caller.answer()
        caller.leave()
    assert (answer.status, answer.body, worker.asked) == (200, b"again", 2)
