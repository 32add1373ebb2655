"""One template: a warm process that forks a replica whenever one starts.

Before it forks, walls are put up for the fork below its own (`sandbox.family`); the fork enters
them, is moved to control groups of its own, and then gets its job as a standby does. What it has
forked goes on when it ends. Its folder and control groups stay as long as any of that runs.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from hotplate.deploy.errors import StandbyRefused, TemplateUnforkable
from hotplate.deploy.local.host import ProcessHost
from hotplate.deploy.local.runtime import Command, Warm
from hotplate.deploy.local.standby.channel import ANSWER_S, WarmChannel, refusal
from hotplate.deploy.local.standby.warm_process import WarmProcess, housed, spawned, view_of
from hotplate.deploy.process.detached import Process, end_all
from hotplate.deploy.process.procfs import stat_of
from hotplate.deploy.sandbox.family import Family, NestedNamespaces
from hotplate.deploy.sandbox.process_scope import ProcessScope, oom_score
from hotplate.deploy.workload import Resources
from hotplate.machine import foreign_folder
from hotplate.machine.background import thread_to_its_end, until_done

LOOK_S = 0.25
"""Between two looks at a template that does not answer."""
LONGEST_S = 30.0
"""For one fork, while the template forks others: so long are 200 at once on a small machine."""
FORKS_AT_ONCE = len(os.sched_getaffinity(0)) + 2
"""The others wait for their turns: if all shared the cores, the first would be as late as the last.
Two more than there are cores, as each waits for others, and for the kernel, now and then: with one
a hundred that start at once leave a fifth of two cores idle."""

Give = Callable[[WarmChannel], Awaitable[None]]


class TemplateProcess(WarmProcess):
    """Made by `start`."""

    is_template = True

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
        self._turns = asyncio.Semaphore(FORKS_AT_ONCE)
        self._answered_at = 0.0
        self._spent = ""
        """Why it forks nothing any more."""

    @property
    def is_spent(self) -> bool:
        return bool(self._spent)

    @classmethod
    async def start(cls, template: str, warm: Warm, host: ProcessHost) -> TemplateProcess:
        """Raises `SpawnFailed`, `StandbyRefused` and OSError."""
        host.records.living.add(template)
        scope = await housed(template, host)
        channel, family = WarmChannel(), Family()
        try:
            if not host.cgroups.enforced:  # what it forks could not be told from one another
                raise StandbyRefused("control groups cannot be used")
            process = await spawned(
                template,
                warm,
                warm.template,
                host,
                gpus=(),
                channel=channel,
                channel_variable="HOTPLATE_TEMPLATE_FD",
                scope=scope,
                family=family,
            )
        except BaseException:  # also when interrupted: cleaned up, and raised again
            channel.close()
            family.retire()
            host.records.living.discard(template)
            await until_done(_cleared(scope))
            raise
        return cls(template, process, host, channel=channel, scope=scope, family=family)

    async def until_warm(self) -> None:
        """Raises `TemplateUnforkable`, too, where it says that it must not be forked."""
        if "unforkable" in (said := await self._first_line()):
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
        async with self._turns:
            self._look(asyncio.get_running_loop().time())
            records, cgroups = self._host.records, self._host.cgroups
            records.note_birth(replica, self.id)
            records.note_groups(replica, cgroups.folders(replica))
            scope = await cgroups.make(replica, records.work(replica), resources)

            async def give(channel: WarmChannel) -> None:
                await channel.give(env, command.job, listener, records.log_path(replica))

            try:
                return await self._fork(
                    replica, command, scope, oom_score(resources.memory_bytes), give
                ), scope
            except BaseException:  # also when interrupted: cleaned up, and raised again
                await until_done(_cleared(scope))
                records.end_birth(replica)
                raise

    async def end(self) -> None:
        """What it has forked goes on."""
        self._family.retire()
        await self.process.terminate(0)
        self._channel.close()
        await end_all(self._unborn)
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

    def _unborn(self) -> set[int]:
        """What it has forked and no replica has become, and may do more than the first of them."""
        return {*self._scope.members()} - {self._family.first}

    async def _fork(
        self, replica: str, command: Command, scope: ProcessScope, oom: int, give: Give
    ) -> Process:
        """What is forked within walls of its own; `give` has it become the replica."""
        records, isolation = self._host.records, self._host.isolation
        work, log = records.work(replica), records.log_path(replica)
        isolation.claim(work, records.works())
        view = view_of(command, work)
        walls = await isolation.nest(view, log, scope=scope, family=self._family)
        channel = WarmChannel()
        try:
            process = await self._forked(channel, walls, scope)
            try:
                await thread_to_its_end(asyncio.to_thread(self._move, process.pid, scope, walls))
                process.set_oom_score(oom)
                await give(channel)
            except BaseException:  # also when interrupted: cleaned up, and raised again
                await until_done(process.terminate(0))
                raise
        except BaseException:  # the same for what else is within its walls
            walls.end()
            raise
        finally:
            channel.close()
            walls.close()
        return process

    def _move(self, pid: int, scope: ProcessScope, walls: NestedNamespaces) -> None:
        """To the replica's scope. The kernel may have us wait for all its CPUs."""
        scope.enter(pid)
        if walls.found_in(self._scope.members()):  # no limit of the replica's would hold it
            raise StandbyRefused("more than one process was forked")

    async def _forked(
        self, channel: WarmChannel, walls: NestedNamespaces, scope: ProcessScope
    ) -> Process:
        with channel.theirs as theirs:
            self._channel.send(b"f", [theirs.fileno(), *walls.namespaces, walls.plan])
        pid = await self._sender(channel)
        if not walls.hold(pid):
            self._spent = "it has forked what was not within its walls"
            raise StandbyRefused(f"its template is ended: {self._spent}")
        told = self._family.expect(pid)
        return Process.of_fork(pid, scope, beside=[walls.first], told=told)

    async def _sender(self, channel: WarmChannel) -> int:
        """The fork. Others may be forked before it: only silence towards all of them is one."""
        asked_at = asyncio.get_running_loop().time()
        saying = asyncio.create_task(channel.sender())
        try:
            while not (await asyncio.wait([saying], timeout=LOOK_S))[0]:
                self._look(asked_at)
            self._answered_at = asyncio.get_running_loop().time()
            return await saying
        finally:
            saying.cancel()

    def _look(self, asked_at: float) -> None:
        """Raises `StandbyRefused` if no answer will come to what it was asked for then."""
        now = asyncio.get_running_loop().time()
        if not self._spent and stat_of(self.process.pid).state in "Tt":
            self._spent = "it is stopped"
        if not self._spent and max(self._answered_at, asked_at) + ANSWER_S <= now:
            self._spent = f"it did not fork within {ANSWER_S:g} s"
        if self._spent:
            raise StandbyRefused(f"its template is ended: {self._spent}")
        if asked_at + LONGEST_S <= now:
            raise StandbyRefused(f"its template did not fork it within {LONGEST_S:g} s")


async def _cleared(scope: ProcessScope) -> None:
    """Once nothing runs in it."""
    scope.seal()
    await end_all(scope.members)
    with suppress(OSError):  # the next attempt or engine tries again
        scope.remove()
