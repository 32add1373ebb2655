"""One standby: a warm process that becomes a replica when it is given its job.

It writes `{"warm": …}` to its channel once it is ready. Its job is one byte and three descriptors
(document with `env` and `job`, listening socket, log); it answers `{"taken": true}`, or
`{"refused": why}` and ends. It ends, too, when its channel does: with this engine.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hotplate.deploy.errors import StandbyRefused
from hotplate.deploy.local.host import ProcessHost
from hotplate.deploy.process import logfile
from hotplate.deploy.process.detached import Process, document
from hotplate.deploy.process.printable import printable
from hotplate.deploy.runtime import Command, Warm
from hotplate.deploy.sandbox.isolation import MountHelper
from hotplate.deploy.sandbox.process_scope import (
    REPLICA_DIR,
    ProcessScope,
    oom_score,
    private_bytes,
)
from hotplate.deploy.sandbox.visible_files import VisibleFiles
from hotplate.deploy.workload import Resources
from hotplate.machine import foreign_folder

ANSWER_S = 5.0
"""Until a process that only waits has answered: far more than it needs, less than a cold start."""

LAYERS = "layers"
"""The folder of its own directory for what a process writes where others only read."""
LINE_BYTES = 64 << 10
REFUSAL_CHARS = 500
"""Of what it says, at most: code of its environment may speak in its place."""


class StandbyProcess:
    """Made by `start`; then `until_warm`, and `become` or `end`."""

    def __init__(
        self,
        standby: str,
        process: Process,
        host: ProcessHost,
        *,
        channel: socket.socket,
        scope: ProcessScope,
        helper: MountHelper,
        takes_along: Mapping[str, str],
    ) -> None:
        self.id = standby
        self.process = process
        self.watch: asyncio.Task[None] | None = None
        """The task that waits for its end as a standby."""
        self._channel = channel
        self._scope = scope
        self._host = host
        self._helper = helper
        self._takes_along = takes_along
        self._received = b""

    @classmethod
    async def start(
        cls,
        standby: str,
        warm: Warm,
        gpus: Sequence[int],
        host: ProcessHost,
    ) -> StandbyProcess:
        """Raises `SpawnFailed` and OSError."""
        folder = host.records.standby(standby)
        work = folder / "work"
        work.mkdir(parents=True, mode=0o700)
        host.isolation.claim(work, host.records.works())
        scope = await host.cgroups.make(standby, work, Resources())
        ours, theirs = socket.socketpair()
        helper = host.isolation.mount_helper()
        try:
            with theirs, helper:
                env = {
                    **warm.env,
                    **gpu_variables(gpus),
                    "HOTPLATE_STANDBY_FD": str(theirs.fileno()),
                    REPLICA_DIR: str(work),
                }
                process = await host.isolation.spawn(
                    warm.argv,
                    env,
                    work,
                    folder / "log",
                    view=view_of(warm, work),
                    scope=scope,
                    stdin_json={**warm.job, "folder": str(work)},
                    pass_fds=[theirs.fileno()],
                    helper=helper,
                )
        except BaseException:  # also when interrupted: cleaned up, and raised again
            ours.close()
            helper.close()
            scope.remove()
            raise
        ours.setblocking(False)
        return cls(
            standby,
            process,
            host,
            channel=ours,
            scope=scope,
            helper=helper,
            takes_along=warm.takes_along,
        )

    async def until_warm(self) -> None:
        """Raises `StandbyRefused` if it ends before."""
        await self._line()

    def used_bytes(self) -> int:
        """Memory that nobody else shares."""
        return private_bytes(self.process.pid)

    async def show(self, replica: str, command: Command) -> None:
        """Have it see what its replica needs, and own what is the replica's.

        Raises `StandbyRefused`.
        """
        records = self._host.records
        work = records.work(replica)
        waits = self._helper.waits
        try:
            own = records.standby(self.id) / "work"
            await self._host.isolation.hand_over(work, records.log_path(replica), own)
            async with asyncio.timeout(ANSWER_S):
                await self._helper.show(command.reads, [*command.writes, str(work)])
            self.process.beside.pop(waits, None)
        except (OSError, TimeoutError) as error:
            raise StandbyRefused(f"its files cannot be shown to it: {error}") from error

    async def become(
        self,
        replica: str,
        env: Mapping[str, str],
        job: Mapping[str, Any],
        listener: socket.socket,
        resources: Resources,
    ) -> ProcessScope:
        """Make its process the replica's. When this fails or is cancelled, `end` it.

        Raises `StandbyRefused` and OSError.
        """
        if self.watch is not None:
            self.watch.cancel()
        records, cgroups = self._host.records, self._host.cgroups
        groups = cgroups.folders(self.id) if cgroups.enforced else ()
        records.note_birth(replica, self.id)
        records.note_groups(replica, groups)
        self._scope = cgroups.hand_over(groups, records.marks(replica), resources)
        self.process.others = self._scope
        self.process.set_oom_score(oom_score(resources.memory_bytes))
        log_path = records.log_path(replica)
        log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        message = document({"env": dict(env), "job": dict(job)})
        try:
            socket.send_fds(self._channel, [b"j"], [message, listener.fileno(), log])
        finally:
            os.close(message)
            os.close(log)
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await self._line()
        except TimeoutError:
            raise StandbyRefused(f"it did not answer within {ANSWER_S:g} s") from None
        if not answer.get("taken"):
            raise StandbyRefused(printable(str(answer.get("refused")))[:REFUSAL_CHARS])
        self._channel.close()
        # Its folder stays until the replica's goes: what it has there of its own is in use.
        await foreign_folder.aside(records.take_along, self.id, replica, self._takes_along)
        return self._scope

    async def end(self) -> None:
        """SIGKILL: it serves nobody; return when nothing of it is left."""
        await self.process.terminate(0)
        self._channel.close()
        self._helper.close()
        with suppress(OSError):
            self._scope.remove()
        await foreign_folder.aside_for_long(self._host.records.end_standby, self.id)

    def last_words(self) -> str:
        """The last line of its log, "" if there is none."""
        lines = logfile.tail(self._host.records.standby(self.id) / "log", 5)
        return next((line for line in reversed(lines) if line.strip()), "")

    async def _line(self) -> dict[str, Any]:
        """What it says next. Raises `StandbyRefused`."""
        loop = asyncio.get_running_loop()
        while b"\n" not in self._received:
            if len(self._received) > LINE_BYTES:
                raise StandbyRefused(f"it wrote a line of more than {LINE_BYTES} bytes")
            try:
                received = await loop.sock_recv(self._channel, 1 << 16)
            except OSError as error:
                raise StandbyRefused(f"its messages cannot be read: {error}") from error
            if not received:
                raise StandbyRefused(f"it ended; its log ends with: {self.last_words()}")
            self._received += received
        line, _, self._received = self._received.partition(b"\n")
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise StandbyRefused("it wrote something other than a JSON object")
        return answer


def view_of(command: Command | Warm, work: Path) -> VisibleFiles:
    """What its process sees, with this folder as its own."""
    layers = ((folder, str(work / LAYERS / str(n))) for n, folder in enumerate(command.layers))
    return VisibleFiles(command.reads, command.writes, tuple(layers), str(work))


def gpu_variables(gpus: Sequence[int]) -> dict[str, str]:
    """Which GPUs a process sees, in the order in which NVML counts them."""
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)),
    }
