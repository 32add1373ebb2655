"""What is kept of what happened: decisions, crashes, cold starts, waits for room."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime

from hotplate.autoscaler.binary import Reading
from hotplate.autoscaler.policy import Cause
from hotplate.autoscaler.sharing.allocation import Allocation
from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.deploy.phases import ONCE
from hotplate.deploy.workload import WorkloadKey
from hotplate.platform import notices
from hotplate.platform.controller.deployment_state import DeploymentState
from hotplate.platform.controller.metrics import ControllerMetrics
from hotplate.platform.controller.pending_writes import TOGETHER_MAX, PendingWrites
from hotplate.platform.controller.planning import messages
from hotplate.platform.controller.planning.turnovers import phase_of
from hotplate.platform.controller.scaling.deciders import Recommendation, Scaling
from hotplate.platform.controller.scaling.prometheus import QUERY_INVALID
from hotplate.platform.controller.status_json import phases_json
from hotplate.platform.log_format import events
from hotplate.platform.spec.annotations import BinarySpec
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import (
    ColdStart,
    DecisionRecord,
    Deployment,
    DesiredState,
    RolloutOutcome,
)
from hotplate.serving.gateway.protocol.routes import RouteDemand

LEARNT_EVERY_S = 60.0
"""How long what a decider learns may be unwritten: each time is a synchronous write, and a crash
costs it at most this much of what took hours to learn."""


class EventRecorder:
    """Keeps what is new in a deployment since the last call: for the store, with the next `flush`,
    and at once in metrics and log."""

    def __init__(
        self,
        store: Store,
        scaling: Scaling,
        metrics: ControllerMetrics,
        written: Callable[[], None] = lambda: None,
    ) -> None:
        """`written` is called whenever all that was to be kept is."""
        self._store = store
        self._pending = PendingWrites(store, written)
        self._scaling = scaling
        self._metrics = metrics
        self._unwritten: set[int] = set()
        """Deployments whose status, or progress, was not written when it was looked at last."""

    def decided(
        self, state: DeploymentState, recommended: Sequence[Recommendation], now: float
    ) -> None:
        """Keep the decisions that differ from the ones before them, and what deciders learn."""
        before, state.recommended = state.recommended, {each.key: each for each in recommended}
        over = [each for key, each in before.items() if key not in state.recommended]
        changed = []
        for each in over:
            self._metrics.wants(*_labels(each), 0)
        for each in recommended:
            self._metrics.wants(*_labels(each), each.decision.desired)
            last = before.get(each.key)
            if last is None or last.outline != each.outline:
                changed.append(each)
            if last is not None and last.decision.desired != each.decision.desired:
                sentence = messages.scaled(
                    each.key.service, last.decision.desired, each.decision.desired, each.reason
                )
                events.info("%s: %s", state.deployment.name, sentence)
        if over or changed:
            ends = [_end_record(each, state.deployment) for each in over]
            records = ends + [_decision_record(each) for each in changed]
            self._pending.add(self._store.history.add_decisions, state.deployment.id, records)
        self._demand(state, bool(changed), now)
        for each in recommended:
            written_at = state.learnt_at.get(each.key, -math.inf)
            due = now >= written_at + LEARNT_EVERY_S
            if due or each in changed or not state.slots.is_saved(each.key):
                state.learnt_at[each.key] = now
                wall = datetime.now(UTC).timestamp()
                memory = self._scaling.memory(each.key, now, wall, state.deployment.id)
                memory["slots"] = state.slots.memory(each.key)
                name = state.memory_key(each.key.service)
                self._pending.add(self._store.learnt.put, name, memory)

    def _demand(self, state: DeploymentState, decided: bool, now: float) -> None:
        """Keep the demand that deciders saw, now and then, and with each decision."""
        demands = state.demands
        due = demands.due(now)
        if due is not None and (decided or due <= now):
            self._pending.add(self._store.history.add_demands, state.deployment.id, demands.taken())
        elif due is not None:
            state.look_by(due)

    def granted(self, state: DeploymentState, granted: Mapping[WorkloadKey, Allocation]) -> None:
        """Keep which services begin to get less than they want."""
        short = {key: grant for key, grant in granted.items() if grant.cause}
        for key in sorted(short.keys() - state.short):
            message = f"service '{key.service}': {short[key].reason}"
            self._event(state, "Cut", message)
        state.short = frozenset(short)

    def asked(
        self, state: DeploymentState, binary: BinarySpec, readings: Sequence[Reading]
    ) -> None:
        """Keep which of its queries are asked otherwise than they were written, once each, and
        what is wrong with their answers, when that changes."""
        for written, asked in zip(binary.queries, binary.asked, strict=True):
            if written != asked and written not in state.rewritten:
                state.rewritten |= {written}
                message = f"'{written}' is not PromQL; Prometheus is asked '{asked}'"
                self._event(state, "QueryRewritten", message)
        problem = next((reading.problem for reading in readings if reading.problem), "")
        if readings and problem != state.query_problem:
            state.query_problem = problem
            if problem.startswith(QUERY_INVALID):
                self._event(state, QUERY_INVALID, f"{problem}; the replicas stay as they are")
            elif problem:
                self._event(state, "QueryUnknown", f"{problem}; the replicas stay as they are")
            else:
                self._event(state, "QueryAnswered", "all queries return results again")

    def record_problems(self, state: DeploymentState, replicas: Sequence[Replica]) -> None:
        """Keep crashes, failing checks, finished cold starts, builds, and why something waits for
        room."""
        state.see(replicas)
        first_look = state.ended is None
        for replica in state.crashed(replicas):
            self._metrics.crashed(replica)
            self._event(state, "ReplicaCrashed", messages.replica_problem(replica))
        for replica in state.newly_unready(replicas):
            self._event(state, "ReplicaUnready", messages.replica_problem(replica))
        for replica in state.ready_again(replicas):
            self._event(state, "ReplicaReady", messages.ready_again(replica))
        ready = state.newly_ready(replicas)
        for replica in ready.fresh:
            self._metrics.started(replica)
            events.info("%s: %s", state.deployment.name, messages.became_ready(replica))
            if not first_look:  # what was ready before has taught an earlier self
                self._scaling.record_cold_start(replica.key, repeatable_s(replica))
            self._keep_start(state, replica)
        for replica in ready.told:
            self._keep_start(state, replica)
        for replica in ready.timed:
            self._metrics.timed(replica)
        waiting = (r.reason for r in replicas if r.state is ReplicaState.PENDING and r.reason)
        reason = next(waiting, "")
        if reason and reason != state.pending_reason:
            self._event(state, "Pending", reason)
        state.pending_reason = reason
        builds = {replica.build_log: replica for replica in replicas if replica.build_log}
        for log_file in sorted(builds.keys() - state.build_logs):
            replica = builds[log_file]
            self._event(state, "Building", f"service '{replica.key.service}': {replica.reason}")
        state.build_logs = frozenset(builds)

    def counted(self, state: DeploymentState, changes: Sequence[str]) -> None:
        """Keep where the numbers of slots are from, when that is news."""
        for message in changes:
            self._event(state, "Slots", message)

    def reported(
        self,
        state: DeploymentState,
        demands: Mapping[str, RouteDemand],
        replicas: Sequence[Replica],
        now: float,
    ) -> None:
        """Keep which replicas gateways have put out and let in, which routes they cannot serve, and
        what they refused. `demands` of all its routes; `now` in loop seconds."""
        traffic, wall = state.traffic, datetime.now(UTC).timestamp()
        out = {name: why for demand in demands.values() for name, why in demand.out.items()}
        ready = {r.id for r in replicas if r.state is ReplicaState.READY}
        errors = {route: demand.error for route, demand in demands.items() if demand.error}
        for kind, message in (
            *traffic.update_ejections(out, ready, wall),
            *traffic.update_unserved(errors),
        ):
            self._event(state, kind, message)
        traffic.update_refusals({route: demand.refusals for route, demand in demands.items()})
        for route, refusals in traffic.refusals.items():
            if counts := refusals.take_due(now):
                sentence = notices.refused(state.deployment.name, counts)
                self._event(state, "RequestsRefused", f"{route} refused {sentence}")
            state.look_by(refusals.due_at)

    def cut(self, state: DeploymentState, overdue: Collection[str]) -> None:
        """Keep that draining replicas are stopped with requests that have not ended."""
        for name in sorted(overdue):
            self._event(
                state,
                "DrainCut",
                f"replica {name} is stopped before its requests have ended: it had their timeout "
                "(traffic.timeout; for tasks of a replaced revision the label "
                "hotplate/task-drain-s) and a margin to finish them",
            )

    def progressed(self, state: DeploymentState, replicas: Sequence[Replica]) -> None:
        """Keep how far the roll-out of the latest revision has come, if that is news."""
        deployment, shift = state.deployment, state.shift
        latest, before = deployment.latest, deployment.latest.progress
        phase = phase_of(deployment, shift, replicas)
        progress = dict(before)
        if shift is not None:
            progress |= asdict(shift.progress)
            progress["from"] = deployment.serving.number if deployment.serving else None
        if phase != before.get("phase"):
            progress |= {"phase": phase.value, "since": datetime.now(UTC).timestamp()}
        if progress == before:
            return
        self._pending.add(self._store.revisions.note_progress, latest.id, progress)
        self._unwritten.add(deployment.id)
        state.deployment = replace(deployment, latest=replace(latest, progress=progress))

    def concluded(self, name: str, outcome: RolloutOutcome) -> None:
        """Count how a roll-out of the deployment has ended."""
        self._metrics.rollouts.labels(name, outcome.value).inc()

    def found(self, state: DeploymentState, status: str, reason: str) -> None:
        """Keep the status that a step has found, if it is another one."""
        deployment = state.deployment
        if (status, reason) == (deployment.status, deployment.reason):
            return
        self._pending.add(self._store.deployments.set_status, deployment, status, reason)
        self._unwritten.add(deployment.id)
        state.deployment = replace(deployment, status=status, reason=reason)
        if status != deployment.status:
            because = f": {reason}" if reason else ""
            events.info("%s: it is %s%s", deployment.name, status, because)

    async def flush(self) -> bool:
        """Write what was kept since the last time; whether the database has all of it now."""
        written = await self._pending.flush()
        if written:
            self._unwritten.clear()
        return written

    async def flush_of(self, deployment_id: int) -> bool:
        """The same where this deployment's status, or progress, waits; else nothing is written."""
        return deployment_id not in self._unwritten or await self.flush()

    def flush_soon(self, failed: Callable[[], object]) -> None:
        """The same without waiting for it; `failed` is called when the database has not all."""
        self._pending.flush_soon(failed)

    def flush_if_many(self, failed: Callable[[], object]) -> None:
        """The same where so much waits that it fills a transaction."""
        if len(self._pending) >= TOGETHER_MAX:
            self._pending.flush_soon(failed)

    def forget(self, name: str) -> None:
        """Drop the figures of a deployment that is gone; `name` as in the metrics' label."""
        self._metrics.forget(name)

    def _keep_start(self, state: DeploymentState, replica: Replica) -> None:
        cold_start = _cold_start(replica)
        self._pending.add(self._store.history.put_cold_start, state.deployment.id, cold_start)

    def _event(self, state: DeploymentState, kind: str, message: str) -> None:
        events.info("%s: %s", state.deployment.name, message)
        self._pending.add(self._store.history.add_event, state.deployment.id, kind, message)


def repeatable_s(replica: Replica) -> float:
    """What the next cold start will take too, seconds."""
    once_s = sum(p.share_s for p in replica.phases if p.name in ONCE)
    return max(0.1, replica.cold_start_s - once_s)


def _decision_record(made: Recommendation) -> DecisionRecord:
    return DecisionRecord(
        at=datetime.now(UTC),
        revision=made.key.revision,
        service=made.key.service,
        replicas=made.replicas.live,
        desired=made.decision.desired,
        demand=made.demand.total,
        reason=made.reason,
        inputs={
            "in_flight": made.demand.in_flight,
            "queued": made.demand.queued,
            "service_s": made.demand.service_s,
            "ready": made.replicas.ready,
            "starting": len(made.replicas.starting_at),
            "heard": made.decision.cause is not Cause.NO_REPORT,
            "slots": made.slots,
        },
    )


def _end_record(last: Recommendation, deployment: Deployment) -> DecisionRecord:
    """The record that a service's last decision has ended, since nothing decides on it now."""
    why = "no revision of the deployment serves"
    if deployment.wanted is not DesiredState.RUNNING:
        why = "the deployment was terminated"
    elif deployment.serving is not None:
        why = f"revision {deployment.serving.number} has taken its place"
    record = _decision_record(last)
    return replace(record, desired=0, reason=f"{record.replicas} of 0: {why}")


def _labels(recommendation: Recommendation) -> tuple[str, str]:
    key = recommendation.key
    return f"{key.organization}/{key.deployment}", key.service


def _cold_start(replica: Replica) -> ColdStart:
    ready_at = None if replica.ready_at is None else datetime.fromtimestamp(replica.ready_at, UTC)
    return ColdStart(
        replica=replica.id,
        revision=replica.key.revision,
        service=replica.key.service,
        created_at=datetime.fromtimestamp(replica.wanted_at, UTC),
        ready_at=ready_at,
        phases=tuple(phases_json(replica)),
        pool=replica.pool,
        forked=replica.forked,
    )
