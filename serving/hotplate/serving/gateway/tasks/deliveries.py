"""Results of tasks on their way to the control plane, each tried until it has been delivered.

A result that cannot be delivered at once is stored on the disk, where the next gateway finds it if
this one ends first. At most `STORED_BYTES` wait; a result without space is lost, and the task's
caller gets an error that says so.
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
STORED_BYTES = 4 << 30
"""Limit of the results' bytes that wait here for the control plane."""


class Deliveries:
    """The deliveries, by task. Call `load` before the first one, `close` at the end."""

    def __init__(self, client: ControlPlaneClient, folder: Path) -> None:
        """`folder` keeps results that could not be delivered, also those of earlier gateways."""
        self._client = client
        self._folder = ResultFolder(folder, client.id)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._stored_bytes = 0

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._running

    async def load(self) -> None:
        """Delivers the results that earlier gateways have left."""
        try:
            leftover = await asyncio.to_thread(self._folder.open)
        except OSError as error:
            log.warning("results of tasks cannot be stored in %s: %s", self._folder.path, error)
            return
        for path in leftover:
            try:
                result = TaskResult.load(path)
            except (OSError, ValueError, KeyError) as error:
                log.warning("%s is not a task's result (%r); it stays there", path, error)
            else:
                self.deliver(result)

    async def close(self) -> None:
        """Stores on the disk what was not delivered."""
        running = list(self._running.values())
        for delivery in running:
            delivery.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._folder.close()

    def result(self, task_id: str) -> TaskResult:
        """An empty result, to be filled."""
        return TaskResult(self._folder.path, task_id, self._client.id)

    def failure(self, task_id: str, route: str, what: str) -> TaskResult:
        """The result of a task whose handler gave none."""
        error = ReplicaFailed(
            f"{route}: task {task_id} has no result: {what}. "
            "It may have run, so retry it only if that does no harm."
        )
        return TaskResult.of_error(self._folder.path, task_id, self._client.id, error)

    def deliver(self, result: TaskResult) -> None:
        """The task has ended: delivers its result to the control plane."""
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
                    self._stored_bytes += counted
                    result = await self._stored(result)
                await asyncio.sleep(pause)
                pause = min(longest, pause * 2)
        except asyncio.CancelledError:
            await self._stored(result)
            raise
        finally:
            self._stored_bytes -= counted
        result.drop()

    async def _delivered(self, result: TaskResult) -> bool:
        try:
            if result.on_disk:
                await result.store()
            unwanted = await self._client.end(result)
        except (ControlPlaneAway, OSError) as error:
            log.info("task %s: its result waits for the control plane (%s)", result.task_id, error)
            return False
        if unwanted:
            log.warning("task %s: %s", result.task_id, unwanted)
        return True

    async def _stored(self, result: TaskResult) -> TaskResult:
        """Stores the result on the disk; returns it, or an error in its place if there is no
        space."""
        try:
            if self._stored_bytes > STORED_BYTES:
                raise OSError(f"{STORED_BYTES} bytes of results wait already")
            await result.store()
        except OSError as error:
            log.warning("task %s: its result cannot be stored: %s", result.task_id, error)
            result.drop()
            failure = ReplicaFailed(
                f"task {result.task_id} has ended; its result was lost: {error}"
            )
            return TaskResult.of_error(self._folder.path, result.task_id, result.gateway, failure)
        return result
