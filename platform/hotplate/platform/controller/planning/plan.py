"""What to do next for one deployment; pure.

`plan` takes an `Observed` (what is wanted, what there is, what gateways report) and returns a
`NextStep`. Applying steps and planning again ends with a step that changes nothing, so the
controller may stop and start at any point in between.

This folder only decides. `workloads` turns a stored revision into the services that the engine can
run, and `ceiling` and `instance_types` say what one replica may request; `slot_counts` tracks how
many requests a replica takes at a time; `gateway_reports` turns changes in what gateways report
into events; `plan` and `status` decide; `routing` turns the outcome into the gateways' routes;
`messages` has the sentences for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hotplate.deploy.engine import ENDS_FIRST, Replica, ReplicaState
from hotplate.deploy.workload import WorkloadKey
from hotplate.platform.controller.planning.messages import counted
from hotplate.platform.controller.planning.observed import Observed, RolloutVerdict
from hotplate.platform.controller.planning.status import status_of
from hotplate.platform.controller.planning.workloads import Service, called_by
from hotplate.platform.spec.annotations import binary_of
from hotplate.platform.store.records import DesiredState, Revision, RolloutOutcome

START_ATTEMPTS = 3
"""A revision has failed when a replica crashed this often before it was ever ready. A deterministic
error repeats at once; a temporary one, such as a slow download, gets two more attempts."""


@dataclass(frozen=True)
class Scale:
    """The engine shall run `count` replicas of a workload, and none of those in `remove`."""

    key: WorkloadKey
    count: int
    remove: frozenset[str] = frozenset()


@dataclass(frozen=True)
class NextStep:
    """What the reconciler does now, and the deployment's status afterwards."""

    scales: tuple[Scale, ...]
    draining: frozenset[str]
    status: str
    reason: str
    verdict: RolloutVerdict | None = None
    is_gone: bool = False
    """Nothing remains of a deleted deployment, so the controller forgets it."""
    targets: Mapping[WorkloadKey, int] = field(default_factory=dict)


def plan(observed: Observed) -> NextStep:
    """The next step for a deployment, with the status that the client should see meanwhile."""
    deployment = observed.deployment
    if deployment.wanted is not DesiredState.RUNNING:
        return _teardown(observed)
    verdict = _verdict(observed)
    desired = _targets(observed, verdict)
    targets = {key: observed.allocated(key, count) for key, count in desired.items()}
    scales, draining = _steps(observed, targets)
    status, reason = status_of(observed, verdict, desired)
    return NextStep(scales, draining, status, reason, verdict, targets=targets)


def desired_counts(observed: Observed) -> dict[WorkloadKey, int]:
    """How many replicas of each workload there should be, before quotas."""
    if observed.deployment.wanted is not DesiredState.RUNNING:
        return {}
    return _targets(observed, _verdict(observed))


def running_counts(
    observed: Observed, desired: Mapping[WorkloadKey, int]
) -> dict[WorkloadKey, int]:
    """How many replicas each workload is counted with already. A new revision takes over those of
    the serving one, as far as it wants them: at a full quota it could not start otherwise."""
    running = {
        key: sum(replica.id not in observed.draining for replica in observed.replicas_of(key))
        for key in desired
    }
    latest, serving = observed.deployment.latest, observed.deployment.serving
    for key, count in desired.items():
        if serving is None or key.revision != latest.number or serving.number == latest.number:
            continue
        before = replace(key, revision=serving.number)
        taken_over = max(0, min(len(observed.replicas_of(before)), count - running[key]))
        running[key] += taken_over
        running[before] = max(0, running.get(before, 0) - taken_over)
    return running


def _teardown(observed: Observed) -> NextStep:
    scales, draining = _steps(observed, {})
    remaining = len(observed.replicas)
    deleted = observed.deployment.wanted is DesiredState.DELETED
    if remaining:
        return NextStep(scales, draining, "terminating", f"{counted(remaining)} finishing requests")
    return NextStep(scales, draining, "terminated", "it was terminated", is_gone=deleted)


def _verdict(observed: Observed) -> RolloutVerdict | None:
    """How the roll-out has ended now: its revision is ready or has failed; None = it goes on."""
    latest = observed.deployment.latest
    if latest.outcome is not RolloutOutcome.DEPLOYING:
        return None
    services = observed.services[latest.number]
    for service in services:
        for replica in observed.replicas_of(service.workload.key):
            if verdict := _start_failure(replica, service, observed.ages_s[replica.id]):
                return verdict
    if all(_is_rolled_out(observed, service) for service in services):
        return RolloutVerdict(RolloutOutcome.READY, "every service has a ready replica")
    return None


def _start_failure(replica: Replica, service: Service, age_s: float) -> RolloutVerdict | None:
    if replica.ready_at is not None:
        return None
    reason = f"service '{service.name}' cannot start: {replica.reason}"
    if replica.state is ReplicaState.FAILED:
        return RolloutVerdict(RolloutOutcome.FAILED, reason, replica.log_tail)
    attempts = ended_attempts(replica)
    late = attempts > 0 and age_s > service.workload.cold_start_timeout_s
    if attempts < START_ATTEMPTS and not late:
        return None
    return RolloutVerdict(RolloutOutcome.FAILED, f"{reason} (attempt {attempts})", replica.log_tail)


def ended_attempts(replica: Replica) -> int:
    """How often a replica has ended by itself."""
    return replica.restarts + (replica.state in (ReplicaState.BACKOFF, ReplicaState.FAILED))


def _is_rolled_out(observed: Observed, service: Service) -> bool:
    """Whether enough replicas are ready: all that the machine has room for, and at least one."""
    replicas = observed.replicas_of(service.workload.key)
    ready = sum(r.state is ReplicaState.READY for r in replicas)
    waiting = sum(r.state is ReplicaState.PENDING for r in replicas)
    size = observed.allocated(service.workload.key, _rollout_size(observed, service))
    return ready >= max(1, size - waiting)


def _rollout_size(observed: Observed, service: Service) -> int:
    """As many replicas as the serving revision wants, and at least one, which proves that the new
    revision can start."""
    serving = observed.deployment.serving
    key = service.workload.key
    alike = 0
    if serving is not None:
        old = WorkloadKey(key.organization, key.deployment, serving.number, key.service)
        alike = min(observed.desired.get(old, 0), service.policy.max_replicas)
    by_queries = service.workload.entry and binary_of(observed.deployment.labels) is not None
    return max(1, 0 if by_queries else service.policy.min_replicas, alike)


def _targets(observed: Observed, verdict: RolloutVerdict | None) -> dict[WorkloadKey, int]:
    deployment = observed.deployment
    latest, serving = deployment.latest, deployment.serving
    targets: dict[WorkloadKey, int] = {}
    for revision in _active_revisions(latest, serving):
        services = observed.services[revision.number]
        desired = {s.name: observed.desired.get(s.workload.key, 0) for s in services}
        if revision == latest and latest.outcome is RolloutOutcome.DEPLOYING:
            if verdict is not None and verdict.outcome is RolloutOutcome.FAILED:
                desired = {}
            else:
                desired = {s.name: _rollout_size(observed, s) for s in services}
        elif revision == latest and latest.outcome is RolloutOutcome.FAILED:
            desired = {}
        # What a running service calls runs too, so that both start at the same time.
        for name in called_by(services, _nonzero(desired)):
            desired[name] = max(1, desired.get(name, 0))
        targets |= {s.workload.key: desired.get(s.name, 0) for s in services}
    return targets


def _active_revisions(latest: Revision, serving: Revision | None) -> Iterable[Revision]:
    yield latest
    if serving is not None and serving.number != latest.number:
        yield serving


def _steps(
    observed: Observed, targets: Mapping[WorkloadKey, int]
) -> tuple[tuple[Scale, ...], frozenset[str]]:
    """Scale every workload towards its target; what serves drains before it is removed."""
    scales: list[Scale] = []
    draining: set[str] = set()
    keys = sorted({*targets, *observed.ordered, *(replica.key for replica in observed.replicas)})
    called = _called(observed)
    for key in keys:
        live = [r for r in observed.replicas_of(key) if r.state is not ReplicaState.STOPPING]
        kept = max(targets.get(key, 0), key in called)
        victims = _victims(live, len(live) - kept, observed)
        drained = {v.id for v in victims if not _serves(v) or v.id in observed.idle}
        draining |= {v.id for v in victims} - drained
        scales.append(
            Scale(key, max(targets.get(key, 0), len(live) - len(drained)), frozenset(drained))
        )
    return tuple(scales), frozenset(draining)


def _called(observed: Observed) -> set[WorkloadKey]:
    """The workloads that serving replicas may still call, draining ones too: these stop last."""
    called = set()
    for services in observed.services.values():
        keys = {service.name: service.workload.key for service in services}
        serving = {
            s.name: sum(map(_serves, observed.replicas_of(s.workload.key))) for s in services
        }
        called |= {keys[name] for name in called_by(services, _nonzero(serving))}
    return called


def _nonzero(counts: Mapping[str, int]) -> list[str]:
    return [name for name, count in counts.items() if count > 0]


def _victims(live: Sequence[Replica], excess: int, observed: Observed) -> list[Replica]:
    """The replicas to remove: first those that do not serve, then idle ones, so that no busy one
    has to finish while an idle one exists; then those that drain already, those with the fewest
    requests, the youngest.
    """

    def order(replica: Replica) -> tuple[int, bool, bool, int, float, str]:
        busy = observed.busy.get(replica.id, 0)
        stays = replica.id not in observed.draining
        rank = ENDS_FIRST.index(replica.state)
        return rank, busy > 0, stays, busy, -replica.created_at, replica.id

    return sorted(live, key=order)[: max(0, excess)]


def _serves(replica: Replica) -> bool:
    return replica.state in (ReplicaState.READY, ReplicaState.UNREADY)
