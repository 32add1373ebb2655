"""One standby: a warm process that becomes a replica when it is given its job."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence

from hotplate.deploy.errors import StandbyRefused
from hotplate.deploy.local.host import ProcessHost
from hotplate.deploy.local.standby.channel import ANSWER_S, WarmChannel
from hotplate.deploy.local.standby.warm_process import WarmProcess, view_of
from hotplate.deploy.process.detached import Process
from hotplate.deploy.runtime import Command, Warm
from hotplate.deploy.sandbox.mount_helper import MountHelper
from hotplate.deploy.sandbox.process_scope import REPLICA_DIR, ProcessScope, oom_score
from hotplate.deploy.workload import Resources
from hotplate.machine import foreign_folder


class StandbyProcess(WarmProcess):
    """Made by `start`."""

    is_template = False
    is_spent = True

    def __init__(
        self,
        standby: str,
        process: Process,
        host: ProcessHost,
        *,
        channel: WarmChannel,
        scope: ProcessScope,
        helper: MountHelper,
        takes_along: Mapping[str, str],
    ) -> None:
        super().__init__(standby, process, host, channel=channel, scope=scope)
        self._helper = helper
        self._takes_along = takes_along

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
        channel = WarmChannel()
        helper = host.isolation.mount_helper()
        try:
            with channel.theirs as theirs, helper:
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
            channel.close()
            helper.close()
            scope.remove()
            raise
        return cls(
            standby,
            process,
            host,
            channel=channel,
            scope=scope,
            helper=helper,
            takes_along=warm.takes_along,
        )

    async def start_replica(
        self,
        replica: str,
        command: Command,
        env: Mapping[str, str],
        listener: socket.socket,
        resources: Resources,
    ) -> tuple[Process, ProcessScope]:
        """Make its process the replica's. When this fails or is cancelled, `end` it."""
        await self._show(replica, command)
        if self.watch is not None:
            self.watch.cancel()
        records, cgroups = self._host.records, self._host.cgroups
        groups = cgroups.folders(self.id) if cgroups.enforced else ()
        records.note_birth(replica, self.id)
        records.note_groups(replica, groups)
        self._scope = cgroups.hand_over(groups, records.marks(replica), resources)
        self.process.others = self._scope
        self.process.set_oom_score(oom_score(resources.memory_bytes))
        try:
            await self._channel.give(env, command.job, listener, records.log_path(replica))
        except StandbyRefused as error:
            raise self._explained(error) from error
        self._channel.close()
        # Its folder stays until the replica's goes: what it has there of its own is in use.
        await foreign_folder.aside(records.take_along, self.id, replica, self._takes_along)
        return self.process, self._scope

    async def end(self) -> None:
        self._helper.close()
        await super().end()

    async def _show(self, replica: str, command: Command) -> None:
        """Have it see what its replica needs, and own what is the replica's."""
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


def gpu_variables(gpus: Sequence[int]) -> dict[str, str]:
    """Which GPUs a process sees, in the order in which NVML counts them."""
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)),
    }
