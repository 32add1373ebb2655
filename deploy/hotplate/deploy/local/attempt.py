"""One attempt of a replica: prepared, started, ready, ended."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hotplate.deploy.engine import ReplicaState
from hotplate.deploy.errors import DeployError, PrepareFailed
from hotplate.deploy.local.footprints import MemoryReading
from hotplate.deploy.local.host import ProcessHost
from hotplate.deploy.local.probing import Probe, asking
from hotplate.deploy.local.records import Record
from hotplate.deploy.local.runtime import Command, Runtime, Warm
from hotplate.deploy.local.settings import LocalSettings
from hotplate.deploy.local.standby.pool import name_of
from hotplate.deploy.local.standby.pools import StandbyPools
from hotplate.deploy.local.standby.warm_process import WarmProcess, gpu_variables, view_of
from hotplate.deploy.local.start_turns import StartTurns
from hotplate.deploy.phases import Phase, PhaseLog, believable, merge, unix_now
from hotplate.deploy.process import logfile
from hotplate.deploy.process.detached import Process
from hotplate.deploy.process.exit_messages import ending
from hotplate.deploy.process.memory import Memory
from hotplate.deploy.sandbox import resource_limits as guard
from hotplate.deploy.sandbox.process_scope import REPLICA_DIR, ProcessScope
from hotplate.deploy.workload import Workload
from hotplate.machine import foreign_folder
from hotplate.machine.background import thread_to_its_end
from hotplate.machine.unix_address import address_of, listen

LISTEN_BACKLOG = 2048
"""BentoML's own default; the kernel caps it."""

PREPARING = "its environment, files and weights are being prepared"
BUILDING = "its Python environment is being built"
"""Why it is not ready before it has a process."""

KEEP_AFTER_S = (60.0, 300.0)
"""Pauses before what a replica has made is kept: its first requests have compiled most of it."""

HEAR_S = 0.5
"""Between two looks at what a process that starts says of itself."""

log = logging.getLogger(__name__)

Report = Callable[[ReplicaState, str], None]
"""Takes a state of the attempt (STARTING, READY, UNREADY) and its reason."""


@dataclass(frozen=True)
class AttemptRecorder:
    """What the runtime tells of one attempt."""

    begin: Callable[[str], None]
    end: Callable[[str], None]
    building: Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class EngineContext:
    """What all replicas of an engine share."""

    node: str
    """The name of this machine."""
    runtime: Runtime
    host: ProcessHost
    settings: LocalSettings
    standbys: StandbyPools
    turns: StartTurns
    """Of those that are to get a process."""
    may_start_alone: Callable[[str], str]
    """Asked for a replica that no template forks: why the machine has no room for it then, or
    nothing, and it is counted so."""


class Attempt:
    """From a place on the machine to the end of one process."""

    def __init__(
        self, replica: str, workload: Workload, context: EngineContext, noted: PhaseLog
    ) -> None:
        self.process: Process | None = None
        self.address = ""
        self.ready_path = ""
        self.spawned_at = 0.0
        self.ready_at: float | None = None
        self.build_log = ""
        """Where the output of the build goes that it waits for."""
        self.memory: Memory | None = None
        """What it took of the memory when it was read last."""
        self.warm: Warm | None = None
        """What it could have started from."""
        self.pool = ""
        """The name of the pool of that."""
        self.forked = False
        """Whether a template has forked it, as far as this engine knows."""
        self._replica = replica
        self._workload = workload
        self._context = context
        self._noted = noted
        self._cold_start: tuple[Phase, ...] = ()
        """All its phases, once it is ready."""
        self._why_not = ""
        """What its readiness check answers in place of 200, in brackets."""
        self._served_until = 0.0
        """When a readiness check has succeeded last, Unix seconds."""
        self._scope: ProcessScope | None = None
        self._own: Sequence[Phase] = ()
        """The phases of which its process has told."""
        self._phases: tuple[Phase, ...] = ()
        """The phases so far."""
        self._told: tuple[object, ...] = ()
        """What they were made of."""
        self.self_report: Mapping[str, Any] | None = None
        """What else it has said of itself, once it was ready."""
        self.ended_itself = False
        """Whether it was not killed, as far as is known."""
        self.verdict = ""
        """Why it was ended by us, or by the kernel in our name."""

    @classmethod
    def adopt(
        cls, record: Record, process: Process, scope: ProcessScope, context: EngineContext
    ) -> Attempt:
        """Go on with a process that an earlier engine has started."""
        attempt = cls(record.id, record.workload, context, PhaseLog(record.phases))
        attempt.process = process
        attempt._scope = scope
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
        told = self._noted.phases(), tuple(self._own), self.ready_at
        if told != self._told:
            own = believable(self._own, self.spawned_at, unix_now())
            self._told, self._phases = told, merge(self._noted.phases(), own, self.ready_at)
        return self._phases

    async def read_reports(self) -> None:
        """Read what its process says of itself in its folder; of use once it has one."""
        work = str(self._context.host.records.work(self._replica))
        self._own = await self._context.runtime.phases(work)
        if self.ready_at is not None:
            self.self_report = await self._context.runtime.self_report(work)

    async def run(self, gpus: tuple[int, ...], report: Report) -> str:
        """Prepare and start a process unless one was adopted, follow it, return why it ended.

        Raises `PrepareFailed` and `SpawnFailed`. When cancelled, a started process goes on.
        """
        late_s = unix_now() - self.spawned_at if self.process else 0.0
        limit_s = self._workload.cold_start_timeout_s - late_s
        deadline = asyncio.get_running_loop().time() + limit_s
        if self.process is None:
            async with self._context.turns.taken():
                self._noted.end("instance")
                self._noted.begin("environment")
                command = await self._prepare(gpus, deadline, report)
                self._noted.begin("process")
                self.process = await self._begin(command, gpus)
        if self.ready_at is None:
            report(ReplicaState.STARTING, self._not_ready(deadline))
        async with asyncio.TaskGroup() as group:
            watches = [
                group.create_task(self._watch(self.process, deadline, report)),
                group.create_task(self._guard(self.process)),
                group.create_task(
                    guard.keep_short(self._context.host.records.log_path(self._replica))
                ),
                group.create_task(self._keep_later()),
            ]
            code = await self.process.wait()
            for watch in watches:
                watch.cancel()
        await self._keep(ended=True)
        assert self._scope is not None
        self.verdict = self.verdict or self._scope.excess()
        self._leave_nothing()
        self.ended_itself = not self.verdict and (code is None or code >= 0)
        return self.verdict or ending(code, unix_now() - self.spawned_at)

    async def end(self, grace_s: float) -> None:
        """SIGTERM, grace, SIGKILL; returns once nothing of it runs."""
        if self.process is not None:
            await self.process.terminate(grace_s)
        await self._keep(ended=True)
        self._leave_nothing()

    def _leave_nothing(self) -> None:
        """Once its last process is gone."""
        with suppress(OSError):  # of a full disk, say
            logfile.trim(self._context.host.records.log_path(self._replica))
        if self._scope is not None:
            try:
                self._scope.remove()
            except OSError as error:  # the next attempt or engine tries again
                log.warning("replica %s: its control group stays: %s", self._replica, error)

    async def _enclose(self) -> ProcessScope:
        records, cgroups = self._context.host.records, self._context.host.cgroups
        records.note_groups(self._replica, cgroups.folders(self._replica))
        self._scope = await cgroups.make(
            self._replica, records.work(self._replica), self._workload.resources
        )
        return self._scope

    async def _prepare(self, gpus: tuple[int, ...], deadline: float, report: Report) -> Command:
        def building(log: str) -> None:
            self.build_log = log
            report(ReplicaState.STARTING, BUILDING if log else PREPARING)

        records = self._context.host.records
        emptying = foreign_folder.aside_for_long(records.empty_work, self._replica)
        directory = await thread_to_its_end(emptying)
        recorder = AttemptRecorder(self._noted.begin, self._noted.end, building)
        try:
            async with asyncio.timeout_at(deadline) as limit:
                command = await self._context.runtime.prepare(
                    self._workload, self._replica, str(directory), recorder
                )
        except TimeoutError:
            if not limit.expired():
                raise
            raise PrepareFailed(self._lateness(), retry=True) from None
        # As what was built in that phase, a template is there from now on: the next start does not
        # wait for it.
        limit_s = self._workload.cold_start_timeout_s / 2
        if await self._context.standbys.wait_for_template(command.warm, gpus, limit_s):
            self._noted.end("environment")
        return command

    async def _begin(self, command: Command, gpus: tuple[int, ...]) -> Process:
        """Its process, a standby's where one fits, on a socket that accepts from now on."""
        path = self._context.host.records.socket(self._replica)
        with listen(path, LISTEN_BACKLOG) as listener:
            env = {
                **command.env,
                **gpu_variables(gpus),
                REPLICA_DIR: str(self._context.host.records.work(self._replica)),
            }
            self.address, self.ready_path = address_of(path), command.ready_path
            self.spawned_at = unix_now()
            standbys = self._context.standbys
            self.warm, process = command.warm, None
            self.pool = name_of(command.warm, gpus) if command.warm else ""
            if (standby := standbys.take(command, gpus)) is not None:
                process = await self._start_from(standby, command, env, listener)
                self.forked = process is not None and standby.is_template
            if process is None and (why := self._context.may_start_alone(self._replica)):
                raise PrepareFailed(why, no_room=True)
            organization = self._workload.key.organization
            hit = process is not None
            standbys.started(self._replica, command, gpus, organization, hit=hit)
            return process or await self._spawn(command, env, listener)

    async def _start_from(
        self,
        standby: WarmProcess,
        command: Command,
        env: Mapping[str, str],
        listener: socket.socket,
    ) -> Process | None:
        """The standby's process, or a template's fork; None if it cannot be had."""
        with ExitStack() as undo:
            undo.callback(self._context.standbys.drop, standby)
            try:
                process, self._scope = await standby.start_replica(
                    self._replica, command, env, listener, self._workload.resources
                )
            except (DeployError, OSError, ValueError) as error:
                log.info("replica %s: starts cold, its standby did not: %s", self._replica, error)
                return None
            undo.pop_all()
        return process

    async def _spawn(
        self, command: Command, env: Mapping[str, str], listener: socket.socket
    ) -> Process:
        scope = await self._enclose()
        records = self._context.host.records
        work = records.work(self._replica)
        self._context.host.isolation.claim(work, records.works())
        with ExitStack() as undo:
            undo.callback(self._leave_nothing)
            process = await self._context.host.isolation.spawn(
                command.argv,
                {**env, "HOTPLATE_LISTEN_FD": str(listener.fileno())},
                command.cwd,
                records.log_path(self._replica),
                view=view_of(command, work),
                scope=scope,
                stdin_json=command.job,
                pass_fds=[listener.fileno()],
            )
            undo.pop_all()
        return process

    async def _watch(self, process: Process, deadline: float, report: Report) -> None:
        """Report readiness for ever, or end the process that is too late."""
        async with asking(self.address) as http:
            probe = Probe(http, self.ready_path, self._context.settings.probe)
            await self._follow(probe, process, deadline, report)

    async def _follow(
        self, probe: Probe, process: Process, deadline: float, report: Report
    ) -> None:
        if self.ready_at is None:
            hearing = asyncio.create_task(self._keep_hearing())

            def tell(why_not: str) -> None:
                self._why_not = f" (its readiness check answers {why_not})"
                report(ReplicaState.STARTING, self._not_ready(deadline))

            try:
                async with asyncio.timeout_at(deadline):
                    await probe.until_ready(tell)
            except TimeoutError:
                self.verdict = self._lateness()
                await process.terminate(0)
                return
            finally:
                hearing.cancel()
            self.ready_at = unix_now()
            await self.read_reports()
            self._cold_start = self.phases()
            self._context.standbys.start_over(self._replica, ready=True)
            report(ReplicaState.READY, "")
        async for health in probe.health():
            patience_s = (
                self._workload.request_timeout_s + self._context.settings.probe.silence_margin_s
            )
            if health.silent_s > patience_s:
                self.verdict = self._silence(health.silent_s)
                await process.terminate(0)
                return
            if not health.why_not:
                self._served_until = unix_now()
            report(ReplicaState.UNREADY if health.why_not else ReplicaState.READY, health.why_not)

    async def _keep_hearing(self) -> None:
        while True:
            await self.read_reports()
            await asyncio.sleep(HEAR_S)

    async def _guard(self, process: Process) -> None:
        """End the process when it has used more than it may."""
        assert self._scope is not None
        limit_bytes = self._workload.resources.memory_bytes
        self.verdict = await guard.until_excess(self._scope, limit_bytes)
        await process.terminate(0)

    async def _keep_later(self) -> None:
        """Not at its end alone: others start meanwhile."""
        for pause_s in KEEP_AFTER_S:
            await asyncio.sleep(pause_s)
            await self._keep(ended=False)

    async def _keep(self, *, ended: bool) -> None:
        directory = str(self._context.host.records.work(self._replica))
        await self._context.runtime.keep(directory, ended=ended)

    def members(self) -> Collection[int]:
        """All processes of it."""
        return self._scope.members() if self._scope is not None else ()

    @property
    def own_bytes(self) -> int:
        """What is its own of the memory, as read last."""
        return self.memory.own_bytes if self.process is not None and self.memory else 0

    def reading(self) -> MemoryReading | None:
        """What was read of its memory last; None where nothing was."""
        if self.memory is None or self.ready_at is None:
            return None
        return MemoryReading(self.memory, unix_now() - self.ready_at, self.warm, self.forked)

    def served_s(self) -> float:
        """For how long it has answered its readiness checks."""
        return max(0.0, self._served_until - self.ready_at) if self.ready_at else 0.0

    def _silence(self, silent_s: float) -> str:
        return (
            f"ended: it answered no check for {silent_s:.0f} s after it became unready, longer "
            f"than its requests may take (traffic.timeout of {self._workload.request_timeout_s:g} "
            "s); move what blocks its event loop into a plain function (def), or raise the limit"
        )

    def _not_ready(self, deadline: float) -> str:
        left_s = deadline - asyncio.get_running_loop().time()
        at = datetime.fromtimestamp(unix_now() + left_s, UTC)
        return (
            f"its process runs and is not ready yet{self._why_not}; it will be ended unless it is "
            f"ready by {at:%Y-%m-%d %H:%M:%S} UTC (its cold_start_timeout of "
            f"{self._workload.cold_start_timeout_s:g} s)"
        )

    def _lateness(self) -> str:
        return (
            f"not ready within its cold_start_timeout of {self._workload.cold_start_timeout_s:g} s"
            f"{self._why_not}; check what its start waits for, or raise the limit"
        )
