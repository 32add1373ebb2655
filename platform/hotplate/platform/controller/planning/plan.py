"""What to do next for one deployment; pure.

`plan` takes an `Observed` (what is wanted, what there is, what gateways report) and returns a
`NextStep`. Applying steps and planning again ends with a step that changes nothing, so the
controller may stop and start at any point in between.

This folder only decides. `workloads` turns a stored revision into the services that the engine can
run, `turnovers` lets one revision replace another as its strategy says, and `ceiling` and
`instance_types` say what one replica may request; `slot_counts` tracks how many requests a replica
takes at a time; `gateway_reports` turns changes in what gateways report into events; `plan` and
`status` decide; `routing` turns the outcome into the gateways' routes; `messages` has the sentences
for people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hotplate.deploy.engine import ENDS_FIRST, Replica, ReplicaState
from hotplate.deploy.workload import WorkloadKey
from hotplate.platform.controller.planning.messages import counted
from hotplate.platform.controller.planning.observed import Observed, RolloutVerdict
from hotplate.platform.controller.planning.status import status_of
from hotplate.platform.controller.planning.turnovers import Shifted, shifted, strategy_of
from hotplate.platform.controller.planning.workloads import Service, called_by
from hotplate.platform.controller.rollouts.strategies import Shift
from hotplate.platform.store.records import DesiredState, RolloutOutcome

NO_FILES = "it waits for its files, which 'bentoml code' sends"
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
    shift: Shift | None = None
    """How the roll-out goes on; None where none is under way."""


def plan(observed: Observed) -> NextStep:
    """The next step for a deployment, with the status that the client should see meanwhile."""
    deployment = observed.deployment
    if deployment.wanted is not DesiredState.RUNNING:
        return _teardown(observed)
    if why := _held_up(observed):
        targets = _serving_counts(observed)
        scales, draining = _steps(observed, targets)
        return NextStep(scales, draining, "deploying", why, targets=targets)
    rollout = _rollout(observed)
    verdict = _verdict(observed, rollout)
    desired = _targets(observed, rollout, verdict)
    targets = {key: observed.allocated(key, count) for key, count in desired.items()}
    scales, draining = _steps(observed, targets)
    shift = None if rollout is None else rollout.shift
    status, reason = status_of(observed, verdict, desired, shift.phase if shift else None)
    return NextStep(scales, draining, status, reason, verdict, targets=targets, shift=shift)


def desired_counts(observed: Observed) -> dict[WorkloadKey, int]:
    """How many replicas of each workload there should be, before quotas."""
    if observed.deployment.wanted is not DesiredState.RUNNING:
        return {}
    if _held_up(observed):
        return _serving_counts(observed)
    rollout = _rollout(observed)
    return _targets(observed, rollout, _verdict(observed, rollout))


def running_counts(
    observed: Observed, desired: Mapping[WorkloadKey, int]
) -> dict[WorkloadKey, int]:
    """How many replicas each workload is counted with already. A new revision takes over those of
    the serving one, as far as it wants them: at a full quota it could not start otherwise. One
    whose strategy keeps the old one's until its own are ready waits for room instead."""
    running = {
        key: sum(replica.id not in observed.draining for replica in observed.replicas_of(key))
        for key in desired
    }
    latest, serving = observed.deployment.latest, observed.deployment.serving
    if strategy_of(latest).needs_room:
        return running
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


def _held_up(observed: Observed) -> str:
    """Why nothing of the latest revision can start yet; empty = it can, or is not to."""
    deployment, latest = observed.deployment, observed.deployment.latest
    if deployment.dev and not latest.bento.files:
        return NO_FILES
    deploying = latest.outcome is RolloutOutcome.DEPLOYING
    return observed.portless.get(latest.number, "") if deploying else ""


def _serving_counts(observed: Observed) -> dict[WorkloadKey, int]:
    """What there is goes on as it is."""
    serving = observed.deployment.serving
    services = observed.services[serving.number] if serving is not None else ()
    wanted = {s.workload.key: observed.desired.get(s.workload.key, 0) for s in services}
    called = called_by(services, [key.service for key, count in wanted.items() if count])
    return {key: max(count, key.service in called) for key, count in wanted.items()}


def _rollout(observed: Observed) -> Shifted | None:
    deploying = observed.deployment.latest.outcome is RolloutOutcome.DEPLOYING
    return shifted(observed) if deploying else None


def _verdict(observed: Observed, rollout: Shifted | None) -> RolloutVerdict | None:
    """How the roll-out has ended now: its revision is ready or has failed; None = it goes on."""
    if rollout is None:
        return None
    latest = observed.deployment.latest
    for service in observed.services[latest.number]:
        for replica in observed.replicas_of(service.workload.key):
            if verdict := _start_failure(replica, service, observed.ages_s[replica.id]):
                return verdict
    if observed.worse:
        return RolloutVerdict(RolloutOutcome.FAILED, observed.worse)
    if rollout.shift.over:
        return RolloutVerdict(RolloutOutcome.READY, "every service has a ready replica")
    return None


def _start_failure(replica: Replica, service: Service, age_s: float) -> RolloutVerdict | None:
    if replica.ready_at is not None:
        return None
    reason = f"service '{service.name}' cannot start: {replica.reason}"
    if replica.state is not ReplicaState.FAILED:
        attempts = ended_attempts(replica)
        late = attempts > 0 and age_s > service.workload.cold_start_timeout_s
        if attempts < START_ATTEMPTS and not late:
            return None
        reason += f" (attempt {attempts})"
    return RolloutVerdict(RolloutOutcome.FAILED, reason, replica.log_tail, replica.unbuilt)


def ended_attempts(replica: Replica) -> int:
    """How often a replica has ended by itself."""
    return replica.restarts + (replica.state in (ReplicaState.BACKOFF, ReplicaState.FAILED))


def _targets(
    observed: Observed, rollout: Shifted | None, verdict: RolloutVerdict | None
) -> dict[WorkloadKey, int]:
    deployment = observed.deployment
    latest, serving = deployment.latest, deployment.serving
    failed = latest.outcome is RolloutOutcome.FAILED or (
        verdict is not None and verdict.outcome is RolloutOutcome.FAILED
    )
    counts = {} if rollout is None or failed else rollout.counts
    numbers = {latest.number} | {key.revision for key in counts}
    if serving is not None:
        numbers.add(serving.number)
    targets: dict[WorkloadKey, int] = {}
    for number in sorted(numbers, key=lambda number: (number != latest.number, number)):
        services = observed.services[number]
        given = {} if failed and number == latest.number else counts or observed.desired
        desired = {s.name: given.get(s.workload.key, 0) for s in services}
        # What a running service calls runs too, so that both start at the same time.
        for name in called_by(services, _nonzero(desired)):
            desired[name] = max(1, desired.get(name, 0))
        targets |= {s.workload.key: desired.get(s.name, 0) for s in services}
    return targets


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
            s.name: sum(_calls(r, observed) for r in observed.replicas_of(s.workload.key))
            for s in services
        }
        called |= {keys[name] for name in called_by(services, _nonzero(serving))}
    return called


def _calls(replica: Replica, observed: Observed) -> bool:
    """Whether its requests may still call other services: one that was ended by others than us had
    no time to drain before."""
    return _serves(replica) or (replica.leaves and observed.busy.get(replica.id, 0) > 0)


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
