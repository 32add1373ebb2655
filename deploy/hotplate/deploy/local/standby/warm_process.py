"""A process that has imported what replicas of an environment import, and waits.

It writes `{"warm": …}` to its channel once it is ready. It ends when its channel does: with this
engine.
"""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hotplate.deploy.errors import StandbyEnded, StandbyRefused, WarmProcessUnusable
from hotplate.deploy.local.host import ProcessHost
from hotplate.deploy.local.runtime import Command, Warm
from hotplate.deploy.local.standby.channel import WarmChannel, refusal
from hotplate.deploy.process import logfile
from hotplate.deploy.process.detached import Process
from hotplate.deploy.process.memory import Memory, memory_of
from hotplate.deploy.sandbox.family import Family
from hotplate.deploy.sandbox.mount_helper import MountHelper
from hotplate.deploy.sandbox.process_scope import REPLICA_DIR, ProcessScope
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
        self.memory: Memory | None = None
        """What it took of the memory when it was read last; a template without what forks have."""
        self._channel = channel
        self._scope = scope
        self._host = host

    async def until_warm(self) -> None:
        """Raises `StandbyRefused` if it ends before, and `WarmProcessUnusable` where it says so."""
        await self._first_line()

    def members(self) -> Collection[int]:
        """All processes of it."""
        return self._scope.members()

    async def measure(self) -> Memory:
        """Read what it takes of the memory."""
        self.memory = await asyncio.to_thread(lambda: memory_of(self.members()))
        return self.memory

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

    async def _first_line(self) -> dict[str, Any]:
        with self._explained():
            said = await self._channel.line()
        if "unusable" in said:
            raise WarmProcessUnusable(str(refusal(said)))
        return said

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Says of one that ends within the block what its log ends with."""
        try:
            yield
        except StandbyEnded as error:
            raise StandbyRefused(f"{error}; its log ends with: {self.last_words()}") from error


async def housed(standby: str, host: ProcessHost) -> ProcessScope:
    """A folder of its own, and where its processes are held. Raises OSError."""
    work = host.records.standby(standby) / "work"
    work.mkdir(parents=True, mode=0o700)
    host.isolation.claim(work, host.records.works())
    return await host.cgroups.make(standby, work, Resources())


async def spawned(
    standby: str,
    warm: Warm,
    argv: Sequence[str],
    host: ProcessHost,
    *,
    gpus: Sequence[int],
    channel: WarmChannel,
    channel_variable: str,
    scope: ProcessScope,
    helper: MountHelper | None = None,
    family: Family | None = None,
) -> Process:
    """Its process, which finds the other side of the channel by that variable.

    Raises `SpawnFailed` and OSError.
    """
    work = host.records.standby(standby) / "work"
    with channel.theirs as theirs:
        env = {
            **warm.env,
            **gpu_variables(gpus),
            channel_variable: str(theirs.fileno()),
            REPLICA_DIR: str(work),
        }
        return await host.isolation.spawn(
            argv,
            env,
            work,
            work.with_name("log"),
            view=view_of(warm, work),
            scope=scope,
            stdin_json={**warm.job, "folder": str(work)},
            pass_fds=[theirs.fileno()],
            helper=helper,
            family=family,
        )


def gpu_variables(gpus: Sequence[int]) -> dict[str, str]:
    """Which GPUs a process sees, in the order in which NVML counts them."""
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)),
    }


def view_of(command: Command | Warm, work: Path) -> VisibleFiles:
    """What its process sees, with this folder as its own."""
    layers = ((folder, str(work / LAYERS / str(n))) for n, folder in enumerate(command.layers))
    return VisibleFiles(command.reads, command.writes, tuple(layers), str(work))
