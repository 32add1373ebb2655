"""Results of tasks on their way to the control plane, each tried until it is there.

What cannot be delivered at once is kept on the disk, where the next gateway finds it if this one
ends first. At most `KEPT_BYTES` wait; a result that has no room is lost, and the task's caller is
told so in its place.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from hotplate.serving.gateway.errors import ReplicaFailed
from hotplate.serving.gateway.tasks.control_plane_client import (
    ControlPlaneAway,
    ControlPlaneClient,
)
from hotplate.serving.gateway.tasks.result import ResultFolder, TaskResult

log = logging.getLogger(__name__)

BACKOFF_S = (0.1, 2.0)
"""First and longest pause before a result is tried again."""
KEPT_BYTES = 4 << 30
"""Results that may wait here together for the control plane."""


class Deliveries:
    """By task. `load` before the first one, `close` at the end."""

    def __init__(self, client: ControlPlaneClient, folder: Path) -> None:
        """`folder` is for results that could not be delivered, also those of earlier gateways."""
        self._client = client
        self._folder = ResultFolder(folder, client.id)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._kept_bytes = 0

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._running

    async def load(self) -> None:
        """Delivers what earlier gateways have left."""
        try:
            leftover = await asyncio.to_thread(self._folder.open)
        except OSError as error:
            log.warning("answers of tasks cannot be kept in %s: %s", self._folder.path, error)
            return
        for path in leftover:
            try:
                result = TaskResult.load(path)
            except (OSError, ValueError, KeyError) as error:
                log.warning("%s is not a task's answer (%r); it is left there", path, error)
            else:
                self.deliver(result)

    async def close(self) -> None:
        """Keeps on the disk what was not delivered."""
        running = list(self._running.values())
        for delivery in running:
            delivery.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._folder.close()

    def result(self, task_id: str) -> TaskResult:
        """An empty one, to be filled."""
        return TaskResult(self._folder.path, task_id, self._client.id)

    def failure(self, task_id: str, route: str, what: str) -> TaskResult:
        """The result of a task that has none of its handler's."""
        error = ReplicaFailed(
            f"{route}: task {task_id} has no result: {what}. "
            "It may have run, so retry it only if that does no harm."
        )
        return TaskResult.of_error(self._folder.path, task_id, self._client.id, error)

    def deliver(self, result: TaskResult) -> None:
        """The task has ended: the control plane is to have its result."""
        task = asyncio.create_task(self._deliver(result))
        self._running[result.task_id] = task
        task.add_done_callback(lambda _: self._running.pop(result.task_id, None))

    # Inside

    async def _deliver(self, result: TaskResult) -> None:
        pause, longest = BACKOFF_S
        counted = 0
        try:
            while not await self._delivered(result):
                if not counted:
                    counted = result.size_bytes
                    self._kept_bytes += counted
                    result = await self._kept(result)
                await asyncio.sleep(pause)
                pause = min(longest, pause * 2)
        except asyncio.CancelledError:
            await self._kept(result)
            raise
        finally:
            self._kept_bytes -= counted
        result.drop()

    async def _delivered(self, result: TaskResult) -> bool:
        try:
            if result.on_disk:
                await result.keep()
            unwanted = await self._client.end(result)
        except (ControlPlaneAway, OSError) as error:
            log.info("task %s: its answer waits for the control plane (%s)", result.task_id, error)
            return False
        if unwanted:
            log.warning("task %s: %s", result.task_id, unwanted)
        return True

    async def _kept(self, result: TaskResult) -> TaskResult:
        """The result on the disk, or, where there is no room for it, that there is none."""
        try:
            if self._kept_bytes > KEPT_BYTES:
                raise OSError(f"{KEPT_BYTES} bytes of answers wait already")
            await result.keep()
        except OSError as error:
            log.warning("task %s: its answer cannot be kept: %s", result.task_id, error)
            result.drop()
            failure = ReplicaFailed(
                f"task {result.task_id} has ended; its answer was lost: {error}"
            )
            return TaskResult.of_error(self._folder.path, result.task_id, result.gateway, failure)
        return result
