"""What to do next for one deployment; pure.

An `Observed` goes in (what is wanted, what there is, what the gateways say), a `NextStep` comes
out. Applying a step and planning again ends in a step that changes nothing, so the controller may
stop and start at any point between.

This folder decides and does nothing. `workloads` makes of a stored revision the services that the
engine can run, and `ceiling` and `instance_types` say what one replica may ask for; `slot_counts`
follows how many requests a replica takes at a time; `gateway_reports` finds what is new in what
gateways say; `plan` and `status` decide; `routing` makes of the outcome what gateways are to serve;
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
"""Crashes before it was ever ready after which a revision has failed (a deterministic error
repeats at once; a passing one, such as a slow download, gets two more tries)."""


@dataclass(frozen=True)
class Scale:
    """The engine is to have so many replicas of a workload, and none of those in `remove`."""

    key: WorkloadKey
    count: int
    remove: frozenset[str] = frozenset()


@dataclass(frozen=True)
class NextStep:
    """What the reconciler does now, and the status that the deployment has then."""

    scales: tuple[Scale, ...]
    draining: frozenset[str]
    status: str
    reason: str
    verdict: RolloutVerdict | None = None
    gone: bool = False
    """Nothing is left of a deleted deployment: forget it."""
    targets: Mapping[WorkloadKey, int] = field(default_factory=dict)


def plan(observed: Observed) -> NextStep:
    """The next step for a deployment, with the status that the client should see meanwhile."""
    deployment = observed.deployment
    if deployment.wanted is not DesiredState.RUNNING:
        return _torn_down(observed)
    verdict = _verdict(observed)
    wanted_counts = _targets(observed, verdict)
    targets = {key: observed.most(key, count) for key, count in wanted_counts.items()}
    scales, draining = _steps(observed, targets)
    status, reason = status_of(observed, verdict, wanted_counts)
    return NextStep(scales, draining, status, reason, verdict, targets=targets)


def wanted(observed: Observed) -> dict[WorkloadKey, int]:
    """How many replicas of each workload there should be, if nobody else wanted any."""
    if observed.deployment.wanted is not DesiredState.RUNNING:
        return {}
    return _targets(observed, _verdict(observed))


def held_by(observed: Observed, wanted_counts: Mapping[WorkloadKey, int]) -> dict[WorkloadKey, int]:
    """What each workload has already. A new revision takes over what it wants of what there is of
    the one that serves, until that is gone: at a full quota it could not start otherwise."""
    held = {
        key: sum(replica.id not in observed.draining for replica in observed.of(key))
        for key in wanted_counts
    }
    latest, serving = observed.deployment.latest, observed.deployment.serving
    for key, count in wanted_counts.items():
        if serving is None or key.revision != latest.number or serving.number == latest.number:
            continue
        before = replace(key, revision=serving.number)
        passed = max(0, min(len(observed.of(before)), count - held[key]))
        held[key] += passed
        held[before] = max(0, held.get(before, 0) - passed)
    return held


def _torn_down(observed: Observed) -> NextStep:
    scales, draining = _steps(observed, {})
    left = len(observed.replicas)
    deleted = observed.deployment.wanted is DesiredState.DELETED
    if left:
        return NextStep(scales, draining, "terminating", f"{counted(left)} finishing requests")
    return NextStep(scales, draining, "terminated", "it was terminated", gone=deleted)


def _verdict(observed: Observed) -> RolloutVerdict | None:
    """Whether a roll-out has ended now: its revision stands or has failed."""
    latest = observed.deployment.latest
    if latest.outcome is not RolloutOutcome.DEPLOYING:
        return None
    services = observed.services[latest.number]
    for service in services:
        for replica in observed.of(service.workload.key):
            if verdict := _given_up(replica, service, observed.now):
                return verdict
    if all(_stands(observed, service) for service in services):
        return RolloutVerdict(RolloutOutcome.READY, "every service has a replica that answers")
    return None


def _given_up(replica: Replica, service: Service, now: float) -> RolloutVerdict | None:
    if replica.ready_at is not None:
        return None
    reason = f"service '{service.name}' cannot start: {replica.reason}"
    if replica.state is ReplicaState.FAILED:
        return RolloutVerdict(RolloutOutcome.FAILED, reason, replica.log_tail)
    attempts = ended_attempts(replica)
    late = attempts > 0 and now - replica.created_at > service.workload.cold_start_timeout_s
    if attempts < START_ATTEMPTS and not late:
        return None
    return RolloutVerdict(RolloutOutcome.FAILED, f"{reason} (attempt {attempts})", replica.log_tail)


def ended_attempts(replica: Replica) -> int:
    """How often a replica has ended by itself."""
    return replica.restarts + (replica.state in (ReplicaState.BACKOFF, ReplicaState.FAILED))


def _stands(observed: Observed, service: Service) -> bool:
    """Enough replicas answer: all that fit of those asked for, one at least."""
    replicas = observed.of(service.workload.key)
    ready = sum(r.state is ReplicaState.READY for r in replicas)
    waiting = sum(r.state is ReplicaState.PENDING for r in replicas)
    size = observed.most(service.workload.key, _rollout_size(observed, service))
    return ready >= max(1, size - waiting)


def _rollout_size(observed: Observed, service: Service) -> int:
    """As many as the revision that serves now wants, one at least: it proves that it can start."""
    serving = observed.deployment.serving
    key = service.workload.key
    alike = 0
    if serving is not None:
        old = WorkloadKey(key.organization, key.deployment, serving.number, key.service)
        alike = min(observed.desired.get(old, 0), service.policy.max_replicas)
    switched = service.workload.entry and binary_of(observed.deployment.labels) is not None
    return max(1, 0 if switched else service.policy.min_replicas, alike)


def _targets(observed: Observed, verdict: RolloutVerdict | None) -> dict[WorkloadKey, int]:
    deployment = observed.deployment
    latest, serving = deployment.latest, deployment.serving
    targets: dict[WorkloadKey, int] = {}
    for revision in _kept(latest, serving):
        services = observed.services[revision.number]
        wanted_counts = {s.name: observed.desired.get(s.workload.key, 0) for s in services}
        if revision == latest and latest.outcome is RolloutOutcome.DEPLOYING:
            if verdict is not None and verdict.outcome is RolloutOutcome.FAILED:
                wanted_counts = {}
            else:
                wanted_counts = {s.name: _rollout_size(observed, s) for s in services}
        elif revision == latest and latest.outcome is RolloutOutcome.FAILED:
            wanted_counts = {}
        # What a running service calls is up whenever it is, so that they start side by side.
        for name in called_by(services, _any_of(wanted_counts)):
            wanted_counts[name] = max(1, wanted_counts.get(name, 0))
        targets |= {s.workload.key: wanted_counts.get(s.name, 0) for s in services}
    return targets


def _kept(latest: Revision, serving: Revision | None) -> Iterable[Revision]:
    yield latest
    if serving is not None and serving.number != latest.number:
        yield serving


def _steps(
    observed: Observed, targets: Mapping[WorkloadKey, int]
) -> tuple[tuple[Scale, ...], frozenset[str]]:
    """Scale every workload towards its target; what serves is drained before it is removed."""
    scales: list[Scale] = []
    draining: set[str] = set()
    keys = sorted({*targets, *observed.ordered, *(replica.key for replica in observed.replicas)})
    called = _called(observed)
    for key in keys:
        live = [r for r in observed.of(key) if r.state is not ReplicaState.STOPPING]
        kept = max(targets.get(key, 0), key in called)
        victims = _victims(live, len(live) - kept, observed)
        drained = {v.id for v in victims if not _serves(v) or v.id in observed.idle}
        draining |= {v.id for v in victims} - drained
        scales.append(
            Scale(key, max(targets.get(key, 0), len(live) - len(drained)), frozenset(drained))
        )
    return tuple(scales), frozenset(draining)


def _called(observed: Observed) -> set[WorkloadKey]:
    """What replicas that serve may still call, also those that drain: it goes after them."""
    called = set()
    for services in observed.services.values():
        keys = {service.name: service.workload.key for service in services}
        serving = {s.name: sum(map(_serves, observed.of(s.workload.key))) for s in services}
        called |= {keys[name] for name in called_by(services, _any_of(serving))}
    return called


def _any_of(counts: Mapping[str, int]) -> list[str]:
    return [name for name, count in counts.items() if count > 0]


def _victims(live: Sequence[Replica], excess: int, observed: Observed) -> list[Replica]:
    """The replicas to remove: first those that do not answer, then idle ones, so that nobody waits
    for a busy one's end while an idle one is there; then those that drain already, have least to
    do, are younger.
    """

    def order(replica: Replica) -> tuple[int, bool, bool, int, float, str]:
        busy = observed.busy.get(replica.id, 0)
        stays = replica.id not in observed.draining
        rank = ENDS_FIRST.index(replica.state)
        return rank, busy > 0, stays, busy, -replica.created_at, replica.id

    return sorted(live, key=order)[: max(0, excess)]


def _serves(replica: Replica) -> bool:
    return replica.state in (ReplicaState.READY, ReplicaState.UNREADY)
