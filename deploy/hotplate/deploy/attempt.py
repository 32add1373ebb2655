"""One attempt of a replica: prepared, started, ready, ended."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import aiohttp

from hotplate.deploy import logfile
from hotplate.deploy.endings import ending
from hotplate.deploy.engine import Command, Phase, ReplicaState, Runtime, Workload
from hotplate.deploy.errors import PrepareFailed
from hotplate.deploy.phases import PhaseLog, merge, unix_now
from hotplate.deploy.probing import Probe
from hotplate.deploy.processes import Process
from hotplate.deploy.records import Record, Records
from hotplate.deploy.settings import LocalSettings

LISTEN_BACKLOG = 2048
"""BentoML's own default; the kernel caps it."""

REPLICA_DIR = "HOTPLATE_REPLICA_DIR"
"""Names the replica's folder to its processes, and the processes to an engine that lost them."""

Report = Callable[[ReplicaState, str], None]
"""Takes a state of the attempt (STARTING, READY, UNREADY) and its reason."""


@dataclass(frozen=True)
class Surroundings:
    """What all replicas of an engine share."""

    runtime: Runtime
    records: Records
    http: aiohttp.ClientSession
    settings: LocalSettings


class Attempt:
    """From a place on the machine to the end of one process."""

    def __init__(
        self, replica: str, workload: Workload, around: Surroundings, noted: PhaseLog
    ) -> None:
        self.process: Process | None = None
        self.address = ""
        self.ready_path = ""
        self.spawned_at = 0.0
        self.ready_at: float | None = None
        self._replica = replica
        self._workload = workload
        self._around = around
        self._noted = noted
        self._cold_start: tuple[Phase, ...] = ()
        """All its phases, once it is ready."""
        self._too_late = ""
        """Why we ended the process ourselves."""

    @classmethod
    def adopt(cls, record: Record, process: Process, around: Surroundings) -> Attempt:
        """Go on with a process that an earlier engine has started."""
        attempt = cls(record.id, record.workload, around, PhaseLog(record.phases))
        attempt.process = process
        attempt.address = record.address
        attempt.ready_path = record.ready_path
        attempt.spawned_at = record.spawned_at
        attempt.ready_at = record.ready_at
        attempt._cold_start = record.phases if record.ready_at is not None else ()
        return attempt

    def phases(self) -> tuple[Phase, ...]:
        """The phases of its cold start so far."""
        if self._cold_start or self.process is None:
            return self._cold_start or self._noted.phases()
        own = self._around.runtime.phases(str(self._around.records.work(self._replica)))
        return merge(self._noted.phases(), own, self.ready_at)

    async def run(self, gpus: tuple[int, ...], report: Report) -> str:
        """Prepare and start a process unless one was adopted, follow it, return why it ended.

        Raises `PrepareFailed` and `SpawnFailed`. When cancelled, a started process goes on.
        """
        late_s = unix_now() - self.spawned_at if self.process else 0.0
        limit_s = self._workload.cold_start_timeout_s - late_s
        deadline = asyncio.get_running_loop().time() + limit_s
        if self.process is None:
            self._noted.end("instance")
            self._noted.begin("environment")
            command = await self._prepare(deadline)
            self._noted.begin("process")
            self.process = self._spawn(command, gpus)
            report(ReplicaState.STARTING, "its process runs and is not ready yet")
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(self._watch(self.process, deadline, report))
            code = await self.process.wait()
            watch.cancel()
        return self._too_late or ending(code, unix_now() - self.spawned_at)

    async def _prepare(self, deadline: float) -> Command:
        directory = self._around.records.empty_work(self._replica)
        try:
            async with asyncio.timeout_at(deadline) as limit:
                return await self._around.runtime.prepare(
                    self._workload, self._replica, str(directory), self._noted
                )
        except TimeoutError:
            if not limit.expired():
                raise
            raise PrepareFailed(self._lateness(), retry=True) from None

    def _spawn(self, command: Command, gpus: tuple[int, ...]) -> Process:
        """Start the process on a port that accepts from now on."""
        records = self._around.records
        with socket.create_server(("127.0.0.1", 0), backlog=LISTEN_BACKLOG) as listener:
            env = {
                **command.env,
                "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order in which NVML counts them
                "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)),
                "HOTPLATE_LISTEN_FD": str(listener.fileno()),
                REPLICA_DIR: str(records.work(self._replica)),
            }
            host, port = listener.getsockname()
            self.address, self.ready_path = f"{host}:{port}", command.ready_path
            self.spawned_at = unix_now()
            return Process.spawn(
                command.argv,
                env,
                command.cwd,
                records.log_path(self._replica),
                command.job,
                [listener.fileno()],
            )

    async def _watch(self, process: Process, deadline: float, report: Report) -> None:
        """Report readiness for ever, or end the process that is too late."""
        url = f"http://{self.address}{self.ready_path}"
        probe = Probe(self._around.http, url, self._around.settings.probe)
        if self.ready_at is None:
            try:
                async with asyncio.timeout_at(deadline):
                    await probe.until_ready()
            except TimeoutError:
                self._too_late = self._lateness()
                await process.terminate(0)
                return
            self.ready_at = unix_now()
            self._cold_start = self.phases()
            report(ReplicaState.READY, "")
        async for why_not in probe.verdicts():
            report(ReplicaState.UNREADY if why_not else ReplicaState.READY, why_not)
            with suppress(OSError):  # of a full disk, say: the log is cut the next time
                logfile.trim(self._around.records.log_path(self._replica))

    def _lateness(self) -> str:
        return f"not ready within {self._workload.cold_start_timeout_s:g} s"
