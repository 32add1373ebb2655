"""The engine of one machine: replicas are processes.

What is desired (`scale`) is compared with what there is whenever a call, a death or a timer wakes
the one task that does it: `plan` says which replicas to make and to stop, `admission` which of the
pending ones fit and on which GPUs. A `replica` goes on by itself from there, attempt
after attempt: an `attempt` has the runtime prepare a command, takes a warm process of `standby` or
starts one within the `host`'s control groups and isolation, waits until it is ready (`probing`) and
watches it to its end. Each writes down what it has started (`records`) before it goes on, so that
the next engine adopts what still runs and clears away the rest (`orphans`), wherever this one dies.
The folders of those that have ended go when nothing starts (`leavings`).
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import string
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hotplate.deploy.engine import Engine, Node, Replica, ReplicaState
from hotplate.deploy.errors import UnknownReplica
from hotplate.deploy.local.admission import Admission
from hotplate.deploy.local.attempt import EngineContext
from hotplate.deploy.local.host import ProcessHost
from hotplate.deploy.local.leavings import Leavings
from hotplate.deploy.local.machine import Machine
from hotplate.deploy.local.memory_watch import MemoryWatch
from hotplate.deploy.local.orphans import OrphanedProcesses, clear_away
from hotplate.deploy.local.plan import Member, make_plan
from hotplate.deploy.local.records import Records
from hotplate.deploy.local.replica import LocalReplica, complete
from hotplate.deploy.local.runtime import Runtime
from hotplate.deploy.local.settings import LocalSettings
from hotplate.deploy.local.standby.pools import StandbyPools
from hotplate.deploy.local.start_turns import StartTurns
from hotplate.deploy.local.usage import UsageReader
from hotplate.deploy.process import logfile
from hotplate.deploy.process.detached import Process
from hotplate.deploy.process.growing_file import followed
from hotplate.deploy.sandbox.cgroups import end_groups
from hotplate.deploy.workload import Resources, Workload, WorkloadKey
from hotplate.machine import foreign_folder
from hotplate.machine.background import BackgroundTasks
from hotplate.machine.descriptors import are_short

_REPAIR_PAUSE_S = 1.0
"""Until what is desired is compared again after that has failed (a full disk …)."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Desired:
    workload: Workload
    count: int


def any_starts(replicas: Mapping[str, LocalReplica]) -> bool:
    """Whether a cold start is under way that has not gone on for minutes already."""
    return any(each.starts_lately for each in replicas.values())


def new_id(key: WorkloadKey, rng: random.Random, known: Callable[[str], bool]) -> str:
    """A name that is good in paths, host names and to the eye, and that is not `known` yet."""
    words = re.sub(r"[^a-z0-9]+", "-", f"{key.deployment}-{key.revision}-{key.service}".lower())
    while True:
        ending = "".join(rng.choices(string.ascii_lowercase + string.digits, k=5))
        if not known(replica := f"{words.strip('-')}-{ending}"):
            return replica


def _log_of(records: Records, replica: str) -> Path:
    """Raises UnknownReplica."""
    path = records.log(replica)
    if path is None:
        raise UnknownReplica(f"There is no replica {replica!r} now, nor was there lately.")
    return path


class LocalEngine(Engine):
    """Makes what is desired exist, as processes of this machine.

    One task compares what is desired with what there is; calls, deaths and timers wake it,
    nothing polls.
    """

    def __init__(
        self,
        host: ProcessHost,
        runtime: Runtime,
        machine: Machine,
        settings: LocalSettings | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """`rng` makes the ids of replicas."""
        self._records, self._cgroups = host.records, host.cgroups
        self.ended_logs = host.records.ended
        self._machine = machine
        self._settings = settings or LocalSettings()
        self._rng = rng or random.SystemRandom()
        self._desired: dict[WorkloadKey, _Desired] = {}
        self._replicas: dict[str, LocalReplica] = {}
        self.usage = UsageReader(self._replicas, host.records)
        """What they have used."""
        self._expected: set[WorkloadKey] | None = None
        """Those that may have replicas; None = not all have been named yet."""
        self._wake = asyncio.Event()
        self._has_changed = asyncio.Event()
        self._tasks = BackgroundTasks()
        starting = partial(any_starts, self._replicas)
        self.standbys = StandbyPools(
            host,
            self._settings.standby,
            machine_bytes=machine.capacity.memory_bytes,
            rng=self._rng,
            starting=starting,
            changed=self._standbys_changed,
        )
        """The warm processes of this machine, which become its replicas."""
        self._admission = Admission(machine, host.records, self._replicas, self.standbys)
        self._memory = MemoryWatch(
            self._admission.measured, self._memory_read, self._settings.memory, starting
        )
        self._leavings = Leavings(host.records, starting)
        self._context = EngineContext(
            node=machine.name,
            runtime=runtime,
            host=host,
            settings=self._settings,
            standbys=self.standbys,
            turns=StartTurns(),
            may_start_alone=self._admission.may_start_alone,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._families: set[str] = set()
        """Standbys and templates of an earlier engine of which adopted replicas were born."""

    async def start(self) -> None:
        await self._adopt()
        self.standbys.start()
        self._reconciler = asyncio.create_task(self._reconcile(), name="local engine")
        self._asides = [
            asyncio.create_task(self._memory.run(), name="memory of replicas"),
            asyncio.create_task(self._leavings.run(), name="what replicas leave"),
        ]
        self._leavings.add()  # of an earlier engine

    async def scale(self, workload: Workload, count: int, *, remove: Collection[str] = ()) -> None:
        for replica in map(self._replicas.get, remove):
            if replica is not None and replica.workload.key == workload.key:
                self._stop(replica, "drained" if replica.serves else "it is no longer wanted")
        self._desired[workload.key] = _Desired(workload, count)
        if self._expected is not None:
            self._expected.add(workload.key)
        for replica in self._replicas.values():
            if replica.workload.key == workload.key and not replica.may_retry:
                complete(replica, workload)
        self._stop_cut_off(workload)
        self._wake.set()

    async def expect(self, workloads: Collection[Workload]) -> None:
        expected = {workload.key for workload in workloads}
        if expected != self._expected:
            self._expected = expected
            self._desired = {k: each for k, each in self._desired.items() if k in expected}
            self._wake.set()

    def replicas(self) -> Sequence[Replica]:
        return [replica.view() for replica in self._replicas.values()]

    async def changed(self) -> None:
        await self._has_changed.wait()
        self._has_changed.clear()

    async def logs(self, replica: str, lines: int) -> list[str]:
        return await asyncio.to_thread(logfile.tail, _log_of(self._records, replica), lines)

    def follow(self, replica: str, lines: int | None = None) -> AsyncGenerator[str, None]:
        return followed(_log_of(self._records, replica), lines, lambda: replica in self._replicas)

    def capacity(self) -> Mapping[str, Node]:
        return {self._machine.name: self._admission.node()}

    def bounds(self) -> Resources:
        return self._admission.node().in_all

    def footprint_bytes(self, key: WorkloadKey) -> int:
        return self._admission.footprint_bytes(key)

    async def stop_all(self) -> None:
        self._desired.clear()
        self._expected = set()
        for replica in list(self._replicas.values()):
            self._stop(replica, "the platform is stopping")
        await self._tasks.finish()
        await self._leavings.clear()

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._reconciler, *self._asides):
            task.cancel()
            await asyncio.wait([task])
        await self._tasks.cancel()
        await asyncio.gather(*(replica.leave() for replica in self._replicas.values()))
        await self.standbys.close()
        self._cgroups.close()

    async def _adopt(self) -> None:
        """Take over what still runs; clear away the rest.

        Standbys of another engine have ended with it, or end now: they serve nobody.
        """
        unknown = set(self._records.ids())
        kept: set[Path] = set()
        marks: set[Path] = set()
        ending: list[LocalReplica] = []
        for record in self._records.load():
            groups = self._records.groups(record.id)
            scope = self._cgroups.adopt(
                groups, self._records.marks(record.id), record.workload.resources.memory_bytes
            )
            if process := Process.adopt(record.pid, record.start_time, scope):
                adopted = LocalReplica.adopt(record, process, scope, self._context, self._changed)
                self._replicas[record.id] = adopted
                unknown.discard(record.id)
                kept.update(groups)
                for mark in self._records.marks(record.id)[1:]:
                    self._families.add(mark.parent.name)
                    kept.update(self._cgroups.folders(mark.parent.name))
                    marks.add(mark)
                if record.stopping:
                    ending.append(adopted)
        await asyncio.gather(*(replica.resume() for replica in self._replicas.values()))
        for adopted in ending:
            self._stop(adopted, "it was being stopped when the last engine ended")
        groups = [group for replica in unknown for group in self._records.groups(replica)]
        groups += self._cgroups.leftovers(kept)
        standbys = self._records.standbys(self._replicas)
        if strays := OrphanedProcesses(unknown, standbys, groups, kept=marks):
            self._tasks.start(clear_away(strays, self._records))

    def _standbys_changed(self) -> None:
        self._has_changed.set()
        self._memory.look()

    def _changed(self) -> None:
        self._has_changed.set()
        self._wake.set()
        self._memory.look()
        self._leavings.look()

    def _memory_read(self) -> None:
        self._admission.note_memory()
        self._wake.set()  # what waits may fit now, or warm processes have to go

    async def _reconcile(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                self._step(loop.time())
            except Exception as error:  # a bug must not end the loop of all replicas
                log.error(
                    "desired and existing replicas could not be compared; the next attempt is in "
                    "a second: %s",
                    error,
                    exc_info=not are_short(error),
                )
                self._wake_at(loop.time() + _REPAIR_PAUSE_S)

    def _step(self, now: float) -> None:
        """Compare what is desired with what there is once, and begin what is to be done."""
        if self._timer is not None:
            self._timer.cancel()
        counts = {key: wanted.count for key, wanted in self._desired.items()}
        members = [
            Member(each.id, each.workload.key, each.state, each.created_at)
            for each in self._replicas.values()
        ]
        plan = make_plan(counts, members, expected=self._expected)
        for unwanted, reason in plan.stop.items():
            self._stop(self._replicas[unwanted], reason)
        for key, count in plan.create.items():
            for _ in range(count):
                self._create(self._desired[key].workload)
        kept = {member.key for member in members}
        self._desired = {
            k: wanted for k, wanted in self._desired.items() if wanted.count or k in kept
        }
        for replica in self._replicas.values():
            due = replica.state is ReplicaState.BACKOFF and replica.retry_at <= now
            if due and replica.may_retry:
                replica.retry()
        self._admission.admit(now)
        self._admission.make_room()
        pauses = (
            each.retry_at
            for each in self._replicas.values()
            if each.state in (ReplicaState.BACKOFF, ReplicaState.PENDING) and each.retry_at > now
        )
        if (earliest := min(pauses, default=None)) is not None:
            self._wake_at(earliest)

    def _create(self, workload: Workload) -> None:
        replica = new_id(workload.key, self._rng, lambda name: self._records.log(name) is not None)
        self._records.create(replica)
        self._replicas[replica] = LocalReplica(replica, workload, self._context, self._changed)
        self._changed()

    def _stop_cut_off(self, workload: Workload) -> None:
        """Those whose services are no longer reached as they were told, as after another version
        of the platform, or another cluster's token."""
        for replica in self._replicas.values():
            current = replica.workload
            if current.key == workload.key and dict(current.depends) != dict(workload.depends):
                self._stop(replica, "the services that it calls have other URLs now")

    def _stop(self, replica: LocalReplica, reason: str) -> None:
        if replica.state is not ReplicaState.STOPPING:
            replica.begin_stop(reason)
            self._tasks.start(self._end(replica))

    async def _end(self, replica: LocalReplica) -> None:
        await replica.stop()
        try:
            await foreign_folder.aside_for_long(self._records.end, replica.id)
        except OSError:  # its folder is cleared away by the next engine
            log.exception("replica %s: its folder could not be removed", replica.id)
        self._leavings.add()
        await self._forget_families()
        del self._replicas[replica.id]
        self._changed()

    async def _forget_families(self) -> None:
        """Those of which nothing is left but the control group of what was first there."""
        for family in [each for each in self._families if not self._records.has_born(each)]:
            self._families.discard(family)
            with suppress(OSError):  # the next engine tries again
                await end_groups(self._cgroups.folders(family))

    def _wake_at(self, when: float) -> None:
        self._timer = asyncio.get_running_loop().call_at(when, self._wake.set)
