"""The status of a deployment that the client sees, with a sentence; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.deploy.workload import WorkloadKey
from hotplate.platform.controller.planning.messages import counted, failed, failure_of
from hotplate.platform.controller.planning.observed import Observed, RolloutVerdict
from hotplate.platform.controller.rollouts.strategies import Phase
from hotplate.platform.spec.annotations import binary_of
from hotplate.platform.store.records import Revision, RolloutOutcome

NO_REQUESTS = "no requests"
"""The reason of a deployment that sleeps because nobody calls it."""
FAILED = "failed"
UNBUILT = "image-build-failed"
"""As BentoCloud says that there is nothing to run: the environment could not be built."""
_DOWN = (ReplicaState.STOPPING, ReplicaState.FAILED)


def status_of(
    observed: Observed,
    verdict: RolloutVerdict | None,
    desired: Mapping[WorkloadKey, int],
    phase: Phase | None = None,
) -> tuple[str, str]:
    """Status and sentence. `desired`: how many replicas each workload would have without quotas;
    `phase`: of the roll-out that is under way.

    A code space whose code fails only says so in its sentence: `bentoml code` gives up at `failed`
    and the like, and the next save is to repair it.
    """
    status, reason = _status_of(observed, verdict, desired, phase)
    if observed.uncallable:
        reason = f"{reason}; {observed.uncallable}"
    if observed.deployment.dev and status in (FAILED, UNBUILT, "unhealthy"):
        serves = observed.deployment.serving is not None
        return "running" if serves else "deploying", reason
    return status, reason


def _status_of(
    observed: Observed,
    verdict: RolloutVerdict | None,
    desired: Mapping[WorkloadKey, int],
    phase: Phase | None,
) -> tuple[str, str]:
    deployment = observed.deployment
    latest = deployment.latest
    if verdict is not None and verdict.outcome is RolloutOutcome.FAILED:
        return UNBUILT if verdict.unbuilt else FAILED, failed(deployment, verdict.reason)
    if latest.outcome is RolloutOutcome.FAILED:
        # Each new revision begins as `deploying`: what is kept is of this one.
        unbuilt = deployment.status == UNBUILT
        return UNBUILT if unbuilt else FAILED, failed(deployment, latest.reason)
    if latest.outcome is RolloutOutcome.DEPLOYING and verdict is None:
        return "deploying", _waiting_for(observed, latest, phase)
    if latest.number in observed.portless:
        return "unhealthy", observed.portless[latest.number]
    if observed.unserved:
        return "unhealthy", f"it cannot be called: {observed.unserved}"
    return _steady(observed, desired)


def _waiting_for(observed: Observed, revision: Revision, phase: Phase | None) -> str:
    if phase is Phase.PAUSED:
        return _going_on(observed, revision, phase)
    replicas = [r for r in observed.replicas if r.key.revision == revision.number]
    for state in (ReplicaState.PENDING, ReplicaState.BACKOFF):
        for replica in replicas:
            if replica.state is state and replica.reason:
                return _service_problem(replica)
    if shortage := observed.shortage(s.workload.key for s in observed.services[revision.number]):
        return f"it waits: {shortage}"
    starting = [r for r in replicas if r.state is ReplicaState.STARTING and r.reason]
    for replica in sorted(starting, key=lambda replica: not replica.build_log):
        return _service_problem(replica)
    return _going_on(observed, revision, phase)


def _going_on(observed: Observed, revision: Revision, phase: Phase | None) -> str:
    serving = observed.deployment.serving
    if phase is Phase.PAUSED:
        name = observed.deployment.name
        return (
            f"the roll-out of revision {revision.number} is paused; "
            f"'hotplate rollout resume {name}' lets it go on"
        )
    if phase is Phase.DRAINING and serving is not None:
        return (
            f"revision {serving.number} finishes its requests and ends "
            f"before revision {revision.number} starts"
        )
    if phase is Phase.SHIFTING and serving is not None:
        return f"revision {revision.number} takes over from revision {serving.number}"
    return f"revision {revision.number} is starting"


def _steady(observed: Observed, desired: Mapping[WorkloadKey, int]) -> tuple[str, str]:
    """The status and sentence of a revision that has been rolled out."""
    number = observed.deployment.latest.number
    mine = [r for r in observed.replicas if r.key.revision == number and r.state not in _DOWN]
    keys = [service.workload.key for service in observed.services[number]]
    unanswered = [
        key
        for key in keys
        if desired.get(key)
        and not any(r.key == key and r.state is ReplicaState.READY for r in mine)
    ]
    if not mine and not any(desired.get(key) for key in keys):
        by_queries = binary_of(observed.deployment.labels) is not None
        return "scaled-to-zero", "its queries keep it off" if by_queries else NO_REQUESTS
    failing = [r for r in observed.replicas if r.key in unanswered and _is_failing(r)]
    if failing:
        return "unhealthy", _service_problem(failing[0])
    if unanswered:
        waiting = next((_service_problem(r) for r in mine if r.key in unanswered and r.reason), "")
        if shortage := observed.shortage(
            key for key in unanswered if not observed.allocated(key, 1)
        ):
            waiting = f"it waits: {shortage}"
        kept = any(s.policy.min_replicas for s in observed.services[number])
        status = "deploying" if kept else "scaled-to-zero"
        return status, waiting or f"waking: {counted(len(mine))} starting"
    ready = sum(r.state is ReplicaState.READY for r in mine)
    shortage = observed.shortage(keys)
    note = f"; {shortage}" if shortage else _unplaced_note(mine)
    return "running", f"{counted(ready)} ready{note}"


def _service_problem(replica: Replica) -> str:
    return f"service '{replica.key.service}': {failure_of(replica)}"


def _unplaced_note(replicas: Sequence[Replica]) -> str:
    """The end of a sentence about replicas that do not fit; "" where there are none."""
    waiting = [r for r in replicas if r.state is ReplicaState.PENDING and r.reason]
    if not waiting:
        return ""
    wait = "waits" if len(waiting) == 1 else "wait"
    return f"; {counted(len(waiting))} {wait} for room: {waiting[0].reason}"


def _is_failing(replica: Replica) -> bool:
    return replica.state in (ReplicaState.FAILED, ReplicaState.BACKOFF, ReplicaState.UNREADY) or (
        replica.restarts > 0 and replica.state is not ReplicaState.READY
    )
