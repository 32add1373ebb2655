"""A process that has imported what replicas of an environment import, and waits.

It writes `{"warm": …}` to its channel once it is ready. It ends when its channel does: with this
engine.
"""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hotplate.deploy.errors import StandbyRefused
from hotplate.deploy.local.host import ProcessHost
from hotplate.deploy.local.standby.channel import WarmChannel
from hotplate.deploy.process import logfile
from hotplate.deploy.process.detached import Process
from hotplate.deploy.runtime import Command, Warm
from hotplate.deploy.sandbox.process_scope import ProcessScope, private_bytes
from hotplate.deploy.sandbox.visible_files import VisibleFiles
from hotplate.deploy.workload import Resources
from hotplate.machine import foreign_folder

LAYERS = "layers"
"""The folder of its own directory for what a process writes where others only read."""


class WarmProcess(ABC):
    """Then `until_warm`, `start_replica`, `end`."""

    def __init__(
        self,
        standby: str,
        process: Process,
        host: ProcessHost,
        *,
        channel: WarmChannel,
        scope: ProcessScope,
    ) -> None:
        self.id = standby
        self.process = process
        self.watch: asyncio.Task[None] | None = None
        """The task that waits for its end while it waits."""
        self._channel = channel
        self._scope = scope
        self._host = host

    async def until_warm(self) -> None:
        """Raises `StandbyRefused` if it ends before."""
        try:
            await self._channel.line()
        except StandbyRefused as error:
            raise self._explained(error) from error

    def used_bytes(self) -> int:
        """Memory that nobody else shares."""
        return private_bytes(self.process.pid)

    @property
    @abstractmethod
    def is_template(self) -> bool:
        """Whether it stays when a replica has started, and may start others."""

    @property
    @abstractmethod
    def is_spent(self) -> bool:
        """Whether no replica can be started from it any more."""

    @abstractmethod
    async def start_replica(
        self,
        replica: str,
        command: Command,
        env: Mapping[str, str],
        listener: socket.socket,
        resources: Resources,
    ) -> tuple[Process, ProcessScope]:
        """The replica's process. Raises `StandbyRefused`, OSError and ValueError."""

    async def end(self) -> None:
        """SIGKILL: it serves nobody; return when nothing of it is left."""
        await self.process.terminate(0)
        self._channel.close()
        with suppress(OSError):
            self._scope.remove()
        await foreign_folder.aside_for_long(self._host.records.end_standby, self.id)

    def last_words(self) -> str:
        """The last line of its log, "" if there is none."""
        lines = logfile.tail(self._host.records.standby(self.id) / "log", 5)
        return next((line for line in reversed(lines) if line.strip()), "")

    def _explained(self, error: StandbyRefused) -> StandbyRefused:
        words = self.last_words() if str(error) == "it ended" else ""
        return StandbyRefused(f"{error}; its log ends with: {words}") if words else error


def view_of(command: Command | Warm, work: Path) -> VisibleFiles:
    """What its process sees, with this folder as its own."""
    layers = ((folder, str(work / LAYERS / str(n))) for n, folder in enumerate(command.layers))
    return VisibleFiles(command.reads, command.writes, tuple(layers), str(work))
