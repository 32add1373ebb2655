"""A gateway with a route that has a task, and who keeps the tasks."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotplate.serving.gateway.protocol.control_planes import ControlPlanes
from hotplate.serving.gateway.tasks.control_plane_client import ControlPlaneClient
from hotplate.serving.gateway.tasks.deliveries import Deliveries
from hotplate.serving.gateway.tasks.scheduler import TaskScheduler
from tests.serving.gateway.tasks.task_keeper import Kept, TaskKeeper, closed
from tests.support.gateway.backends import Connection, Request
from tests.support.gateway.callers import Answer
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until


@dataclass
class Hall:
    """A kitchen whose route has the task `/job`, and who keeps its tasks."""

    kitchen: Kitchen
    keeper: TaskKeeper
    folder: Path
    client: ControlPlaneClient
    tasks: TaskScheduler
    working: asyncio.Task[None]

    async def submit(self, body: bytes = b"{}", **headers: str) -> str:
        answer = await self.ask("submit", method="POST", body=body, **headers)
        assert answer.status == 200, answer.body
        task_id: str = json.loads(answer.body)["task_id"]
        return task_id

    async def ask(self, verb: str, method: str = "GET", **request: Any) -> Answer:
        return await self.kitchen.ask(f"/job/{verb}", method=method, **request)

    def kept(self, task_id: str) -> Kept:
        return self.keeper.tasks[task_id]

    async def ended(self, task_id: str) -> bytes:
        """The frame of its answer."""
        await until(lambda: self.kept(task_id).ends == 1)
        return self.kept(task_id).answer

    async def begin(self) -> None:
        """Begins to run tasks, as a gateway's process does."""
        gateway = self.kitchen.gateway
        self.client = ControlPlaneClient(
            planes=ControlPlanes(self.keeper.url), token=self.keeper.token
        )
        deliveries = Deliveries(self.client, self.folder)
        self.tasks = gateway.tasks = TaskScheduler(gateway.server, self.client, deliveries)
        await self.kitchen.serve(tasks=("/job",))
        self.working = asyncio.create_task(self.tasks.run())
        await until(lambda: self.keeper.lines)

    async def end(self) -> None:
        await self.tasks.close()
        await closed(self.working)


def gated(kitchen: Kitchen, begun: bytes = b"") -> asyncio.Event:
    """`/job` answers when this is set; `begun` is what the replica says before."""
    gate = asyncio.Event()

    async def job(request: Request, connection: Connection) -> None:
        connection.writer.write(begun)
        await gate.wait()
        connection.answer(b"done")

    kitchen.backend.on("/job", job)
    return gate
