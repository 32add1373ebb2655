"""One replica on this machine: attempt after attempt to have one process that serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.deploy.errors import DeployError, PrepareFailed
from hotplate.deploy.local.attempt import PREPARING, Attempt, EngineContext
from hotplate.deploy.local.placement import Place
from hotplate.deploy.local.records import Record
from hotplate.deploy.phases import PhaseLog, unix_now
from hotplate.deploy.process import logfile
from hotplate.deploy.process.backoff import Backoff
from hotplate.deploy.process.detached import Process
from hotplate.deploy.process.exit_messages import with_last_line
from hotplate.deploy.process.printable import printable
from hotplate.deploy.sandbox.process_scope import ProcessScope
from hotplate.deploy.workload import Workload
from hotplate.machine.descriptors import are_short, short
from hotplate.machine.free_space import full, is_full

REASON_CHARS = 4000
"""A reason may quote a log, a build and an error."""

LONG_START_S = 60.0
"""A start that takes longer waits for its files more than for a core."""

log = logging.getLogger(__name__)


class LocalReplica:
    """PENDING → STARTING → READY ⇄ UNREADY; when that ends → BACKOFF → PENDING, or FAILED.

    STARTING → PENDING where a disk has no room: that is not counted against it.

    The engine calls `wait_for_place`, `start`, `retry` and `begin_stop`; all else goes by itself.
    """

    def __init__(
        self, replica: str, workload: Workload, context: EngineContext, changed: Callable[[], None]
    ) -> None:
        self.id = replica
        self.workload = workload
        self.created_at = unix_now()
        self.state = ReplicaState.PENDING
        self.place: Place | None = None
        """What it holds of the machine."""
        self.retry_at = 0.0
        """Loop time before which it is not started: it pauses in BACKOFF, or PENDING for room."""
        self._context = context
        self._changed = changed
        self._reason = ""
        self._last_end = ""
        """Why its last attempt ended: what an operator needs to know until it is ready again."""
        self._unbuilt = False
        self._restarts = 0
        self._backoff = Backoff(context.settings.backoff)
        self._log_tail: tuple[str, ...] = ()
        self._task: asyncio.Task[None] | None = None
        self._unsaved = False
        """Whether its record lacks what was reported last, because a disk was full."""
        self._wanted_at = self.created_at
        self.may_retry = True
        """Whether its workload is known whole: no record has its variables."""
        self._viewed: Replica | None = None
        """What was reported last."""
        self._shown: tuple[object, ...] = ()
        """What that was made of."""
        self._new_attempt()

    @classmethod
    def adopt(
        cls,
        record: Record,
        process: Process,
        scope: ProcessScope,
        context: EngineContext,
        changed: Callable[[], None],
    ) -> LocalReplica:
        """A replica whose process an earlier engine has started."""
        replica = cls(record.id, record.workload, context, changed)
        replica.created_at = record.created_at
        replica.may_retry = False
        replica.place = record.place
        replica._restarts = record.restarts
        replica.attempt = Attempt.adopt(record, process, scope, context)
        ready = record.ready_at is not None
        replica.state = ReplicaState.READY if ready else ReplicaState.STARTING
        return replica

    async def resume(self) -> None:
        """Go on with the process that was adopted."""
        assert self.place is not None
        await self.attempt.read_reports()
        self._follow(self.place)

    def view(self) -> Replica:
        """What the engine reports of it. The same object as long as nothing has changed: all are
        looked at for each step of each deployment."""
        attempt = self.attempt
        phases = attempt.phases()
        # Its own reports are read between that moment and this word: one look is for both.
        ready_at = None if self.state is ReplicaState.STARTING else attempt.ready_at
        now = (
            self.state,
            self._reason,
            self._restarts,
            self._unbuilt,
            self._log_tail,
            self.created_at,
            self.place is None,
            attempt.process is None,
            attempt.address,
            attempt.self_report,
            attempt.own_bytes,
            ready_at,
            attempt.build_log,
            attempt.pool,
            attempt.forked,
            phases,
        )
        if self._viewed is not None and now == self._shown:
            return self._viewed
        self._shown = now
        self._viewed = Replica(
            id=self.id,
            key=self.workload.key,
            state=self.state,
            uid=self.id,  # it is made by chance, and never given twice
            node="" if self.place is None else self._context.node,
            reason=self._reason,
            address=attempt.address if attempt.process else "",
            self_report=attempt.self_report,
            resources=self.workload.resources,
            manifests=self.workload.manifests,
            memory_bytes=attempt.own_bytes,
            restarts=self._restarts,
            created_at=self.created_at,
            ready_at=ready_at,
            phases=phases,
            pool=attempt.pool,
            forked=attempt.forked,
            log_tail=self._log_tail,
            build_log=attempt.build_log,
            unbuilt=self._unbuilt,
        )
        return self._viewed

    @property
    def serves(self) -> bool:
        """Whether it may have had requests."""
        return self.state in (ReplicaState.READY, ReplicaState.UNREADY)

    @property
    def has_process(self) -> bool:
        return self.attempt.process is not None

    @property
    def starts_lately(self) -> bool:
        """Whether a cold start is under way that has not gone on for minutes already."""
        lasted_s = unix_now() - self._wanted_at
        return self.state is ReplicaState.STARTING and lasted_s < LONG_START_S

    def wait_for_place(self, reason: str) -> None:
        """Say why it is still pending."""
        self._become(ReplicaState.PENDING, reason)

    def start(self, place: Place) -> None:
        """PENDING → STARTING: begin an attempt on `place`."""
        self.place = place
        self._become(ReplicaState.STARTING, self._starting(PREPARING))
        self._follow(place)

    def retry(self) -> None:
        """BACKOFF → PENDING: the pause is over."""
        self._restarts += 1
        self._wanted_at = unix_now()
        self._new_attempt()
        self._become(ReplicaState.PENDING, self._last_end)

    def begin_stop(self, reason: str) -> None:
        """→ STOPPING, at once; `stop` carries it out."""
        if self._task is not None:
            self._task.cancel()
        self._become(ReplicaState.STOPPING, reason)
        if self.attempt.process is not None:
            self._save()

    async def stop(self) -> None:
        """SIGTERM, grace, SIGKILL; returns once nothing of it runs."""
        await self._end_task()
        await self.attempt.end(self.workload.stop_grace_s)
        self.place = None

    async def leave(self) -> None:
        """Stop looking after it; its process goes on."""
        await self._end_task()
        if self.attempt.process is not None:
            self.attempt.process.leave()

    def _new_attempt(self) -> None:
        noted = PhaseLog()
        noted.begin("instance", self._wanted_at)
        self.attempt = Attempt(self.id, self.workload, self._context, noted)

    def _follow(self, place: Place) -> None:
        self._task = asyncio.create_task(self._see_through(place), name=self.id)

    async def _see_through(self, place: Place) -> None:
        """Whatever the attempt ends with becomes this replica's state."""
        try:
            self._ended(await self.attempt.run(place.gpus, self._report))
        except Exception as error:  # it becomes the replica's state, and is logged there
            await self._broken(error)
        finally:
            self._context.standbys.start_over(self.id)

    async def _broken(self, error: Exception) -> None:
        """The attempt has failed. What the machine lacks is waited for: it is no fault of the
        service."""
        if self.attempt.process is None and are_short(error):
            self._wait_for_room(short())
        elif isinstance(error, PrepareFailed):
            logfile.append(self._context.host.records.log_path(self.id), error.log)
            if error.no_room:
                self._wait_for_room(str(error))
            else:
                self._ended(str(error), retry=error.retry, unbuilt=error.unbuilt)
        elif isinstance(error, DeployError):
            self._ended(str(error))
        elif isinstance(error, OSError) and is_full(error) and self.attempt.process is None:
            self._wait_for_room(full(error, self._context.host.records.work(self.id)))
        else:
            # A bug in the runtime must not cost the other replicas their engine.
            log.error("replica %s: the attempt broke", self.id, exc_info=error)
            await self.attempt.end(self.workload.stop_grace_s)
            self._ended(f"{type(error).__name__}: {error}")

    def _ended(self, reason: str, *, retry: bool = True, unbuilt: bool = False) -> None:
        """Give the place back, and pause or give up."""
        self._unbuilt = unbuilt
        ready_at = self.attempt.ready_at
        self._pause(self.attempt.served_s())
        lines = self._context.settings.log_tail_lines
        self._log_tail = tuple(logfile.tail(self._context.host.records.log_path(self.id), lines))
        ended_itself = self.attempt.ended_itself
        if self.attempt.process is not None and (ready_at is None or ended_itself):
            reason = with_last_line(reason, self._log_tail)
        if self.attempt.verdict:
            sentence = f"hotplate: {self.attempt.verdict}"
            logfile.append(self._context.host.records.log_path(self.id), [sentence])
            self._log_tail = (*self._log_tail, sentence)[-lines:]
        self.attempt.process = None
        self.place = None
        log.warning("replica %s: %s", self.id, reason)
        self._last_end = reason
        self._become(ReplicaState.BACKOFF if retry else ReplicaState.FAILED, reason)

    def _wait_for_room(self, reason: str) -> None:
        """STARTING → PENDING: give the place back, and try again after a pause."""
        self._pause(0.0)
        self._new_attempt()
        self.place = None
        self._last_end = reason
        self._become(ReplicaState.PENDING, reason)

    def _pause(self, ready_for_s: float) -> None:
        self._backoff, pause_s = self._backoff.failed(ready_for_s)
        self.retry_at = asyncio.get_running_loop().time() + pause_s

    def _starting(self, stage: str) -> str:
        return f"{stage}; before, {self._last_end}" if self._last_end else stage

    def _report(self, state: ReplicaState, reason: str) -> None:
        """Take what the attempt says, and keep it for an engine that comes after us."""
        if state is ReplicaState.STARTING:
            reason = self._starting(reason)
        if self.state is not ReplicaState.STOPPING:
            changed = self._become(state, reason)
            if self.has_process and (changed or self._unsaved):
                self._save()

    def _become(self, state: ReplicaState, reason: str = "") -> bool:
        """Whether that is a change."""
        reason = printable(reason)[:REASON_CHARS]
        if (state, reason) == (self.state, self._reason):
            return False
        log.info("replica %s: %s → %s %s", self.id, self.state, state, reason)
        self.state, self._reason = state, reason
        self._changed()
        return True

    def _save(self) -> None:
        attempt, process = self.attempt, self.attempt.process
        assert process is not None
        assert self.place is not None
        record = Record(
            id=self.id,
            pid=process.pid,
            start_time=process.start_time,
            workload=self.workload,
            place=self.place,
            address=attempt.address,
            ready_path=attempt.ready_path,
            restarts=self._restarts,
            created_at=self.created_at,
            spawned_at=attempt.spawned_at,
            ready_at=attempt.ready_at,
            phases=attempt.phases(),
            stopping=self.state is ReplicaState.STOPPING,
        )
        try:
            self._context.host.records.save(record)
            self._unsaved = False
        except OSError as error:
            # It goes on serving; its next readiness check brings us here again.
            log.warning("replica %s: its record cannot be written now (%s)", self.id, error)
            self._unsaved = True

    async def _end_task(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


def complete(replica: LocalReplica, workload: Workload) -> None:
    """Have the next attempt of an adopted one have the variables and secrets of its workload."""
    replica.workload = replace(
        replica.workload, env=workload.env, secrets=workload.secrets, calls=workload.calls
    )
    replica.may_retry = True
