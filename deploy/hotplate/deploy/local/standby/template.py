"""One template: a warm process that forks a replica whenever one starts.

Before it forks, walls are put up for the fork below its own (`sandbox.family`); the fork enters
them, is moved to control groups of its own, and then gets its job as a standby does. What it has
forked goes on when it ends. Its folder and control groups stay as long as any of that runs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress

from hotplate.deploy.errors import StandbyRefused, TemplateUnforkable
from hotplate.deploy.local.host import ProcessHost
from hotplate.deploy.local.standby.channel import ANSWER_S, WarmChannel, refusal
from hotplate.deploy.local.standby.process import gpu_variables
from hotplate.deploy.local.standby.warm_process import WarmProcess, view_of
from hotplate.deploy.process.detached import Process
from hotplate.deploy.runtime import Command, Warm
from hotplate.deploy.sandbox.family import Family, NestedNamespaces
from hotplate.deploy.sandbox.process_scope import REPLICA_DIR, ProcessScope, oom_score
from hotplate.deploy.workload import Resources
from hotplate.machine import foreign_folder


class TemplateProcess(WarmProcess):
    """Made by `start`."""

    is_template = True
    is_spent = False

    def __init__(
        self,
        template: str,
        process: Process,
        host: ProcessHost,
        *,
        channel: WarmChannel,
        scope: ProcessScope,
        family: Family,
    ) -> None:
        super().__init__(template, process, host, channel=channel, scope=scope)
        self._family = family
        self._answered_at = 0.0

    @classmethod
    async def start(cls, template: str, warm: Warm, host: ProcessHost) -> TemplateProcess:
        """Raises `SpawnFailed` and OSError."""
        folder = host.records.standby(template)
        work = folder / "work"
        work.mkdir(parents=True, mode=0o700)
        host.records.living.add(template)
        host.isolation.claim(work, host.records.works())
        scope = await host.cgroups.make(template, work, Resources())
        channel, family = WarmChannel(), Family()
        try:
            with channel.theirs as theirs:
                env = {
                    **warm.env,
                    **gpu_variables(()),
                    "HOTPLATE_TEMPLATE_FD": str(theirs.fileno()),
                    REPLICA_DIR: str(work),
                }
                process = await host.isolation.spawn(
                    warm.template,
                    env,
                    work,
                    folder / "log",
                    view=view_of(warm, work),
                    scope=scope,
                    stdin_json={**warm.job, "folder": str(work)},
                    pass_fds=[theirs.fileno()],
                    family=family,
                )
        except BaseException:  # also when interrupted: cleaned up, and raised again
            channel.close()
            family.retire()
            host.records.living.discard(template)
            with suppress(OSError):
                scope.remove()
            raise
        return cls(template, process, host, channel=channel, scope=scope, family=family)

    async def until_warm(self) -> None:
        """Raises `TemplateUnforkable`, too, where it says that it must not be forked."""
        try:
            said = await self._channel.line()
        except StandbyRefused as error:
            raise self._explained(error) from error
        if "unforkable" in said:
            raise TemplateUnforkable(str(refusal(said)))

    async def start_replica(
        self,
        replica: str,
        command: Command,
        env: Mapping[str, str],
        listener: socket.socket,
        resources: Resources,
    ) -> tuple[Process, ProcessScope]:
        """Have it fork the replica. When this fails, nothing of the fork is left."""
        records, cgroups, isolation = self._host.records, self._host.cgroups, self._host.isolation
        work, log = records.work(replica), records.log_path(replica)
        records.note_birth(replica, self.id)
        records.note_groups(replica, cgroups.folders(replica))
        scope = await cgroups.make(replica, work, resources)
        isolation.claim(work, records.works())
        view = view_of(command, work)
        walls = await isolation.nest(view, log, scope=scope, family=self._family)
        channel = WarmChannel()
        try:
            process = await self._forked(channel, walls, scope)
            try:
                scope.enter(process.pid)
                process.set_oom_score(oom_score(resources.memory_bytes))
                await channel.give(env, command.job, listener, log)
            except BaseException:  # also when interrupted: cleaned up, and raised again
                await process.terminate(0)
                raise
        except BaseException:
            with suppress(ProcessLookupError):
                os.kill(walls.first, signal.SIGKILL)
            with suppress(OSError):
                scope.remove()
            raise
        finally:
            channel.close()
            walls.close()
        return process, scope

    async def end(self) -> None:
        """What it has forked goes on."""
        self._family.retire()
        await self.process.terminate(0)
        self._channel.close()
        self._host.records.living.discard(self.id)
        await foreign_folder.aside_for_long(self._host.records.end_standby, self.id)

    @property
    def has_forks(self) -> bool:
        """Whether any replica was forked that has not been cleared away."""
        return self._host.records.has_born(self.id)

    async def gone(self) -> None:
        """Returns when all that it has forked has ended, too, and nothing is left of either."""
        await self._family.gone()
        with suppress(OSError):
            self._scope.remove()
        await foreign_folder.aside_for_long(self._host.records.end_standby, self.id)

    async def _forked(
        self, channel: WarmChannel, walls: NestedNamespaces, scope: ProcessScope
    ) -> Process:
        with channel.theirs as theirs:
            self._channel.send(b"f", [theirs.fileno(), *walls.namespaces, walls.plan])
        pid = await self._sender(channel)
        told = self._family.expect(pid)
        return Process.of_fork(pid, scope, beside=[walls.first], told=told)

    async def _sender(self, channel: WarmChannel) -> int:
        """The fork. Others may be forked before it: only silence towards all of them is one."""
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        saying = asyncio.create_task(channel.sender())
        try:
            while not (await asyncio.wait([saying], timeout=ANSWER_S))[0]:
                if max(self._answered_at, asked_at) + ANSWER_S <= loop.time():
                    self.is_spent = True
                    raise StandbyRefused(f"its template did not fork within {ANSWER_S:g} s")
            self._answered_at = loop.time()
            return await saying
        finally:
            saying.cancel()
