"""One standby: a warm process that becomes a replica when it is given its job."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence

from hotplate.deploy.errors import StandbyRefused
from hotplate.deploy.local.host import ProcessHost
from hotplate.deploy.local.runtime import Command, Warm
from hotplate.deploy.local.standby.channel import ANSWER_S, WarmChannel
from hotplate.deploy.local.standby.warm_process import WarmProcess, housed, spawned
from hotplate.deploy.process.detached import Process
from hotplate.deploy.sandbox.mount_helper import MountHelper
from hotplate.deploy.sandbox.process_scope import ProcessScope, oom_score
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
        scope = await housed(standby, host)
        channel = WarmChannel()
        helper = host.isolation.mount_helper()
        try:
            with helper:
                process = await spawned(
                    standby,
                    warm,
                    warm.argv,
                    host,
                    gpus=gpus,
                    channel=channel,
                    channel_variable="HOTPLATE_STANDBY_FD",
                    scope=scope,
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
        with self._explained():
            await self._channel.give(env, command.job, listener, records.log_path(replica))
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
