"""The status of a deployment that the client sees, and one sentence about it; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.deploy.workload import WorkloadKey
from hotplate.platform.controller.planning.messages import counted, failed, ill
from hotplate.platform.controller.planning.observed import Observed, RolloutVerdict
from hotplate.platform.spec.annotations import binary_of
from hotplate.platform.store.records import Revision, RolloutOutcome

NO_REQUESTS = "no requests"
"""The reason of what sleeps and may."""
_DOWN = (ReplicaState.STOPPING, ReplicaState.FAILED)


def status_of(
    observed: Observed, verdict: RolloutVerdict | None, wanted_counts: Mapping[WorkloadKey, int]
) -> tuple[str, str]:
    """`wanted_counts` say how many replicas each workload would have if all were granted."""
    deployment = observed.deployment
    latest = deployment.latest
    if verdict is not None and verdict.outcome is RolloutOutcome.FAILED:
        return "failed", failed(deployment, verdict.reason)
    if latest.outcome is RolloutOutcome.FAILED:
        return "failed", failed(deployment, latest.reason)
    if latest.outcome is RolloutOutcome.DEPLOYING and verdict is None:
        return "deploying", _waiting_for(observed, latest)
    if observed.unserved:
        return "unhealthy", f"it cannot be called: {observed.unserved}"
    return _steady(observed, wanted_counts)


def _waiting_for(observed: Observed, revision: Revision) -> str:
    replicas = [r for r in observed.replicas if r.key.revision == revision.number]
    for state in (ReplicaState.PENDING, ReplicaState.BACKOFF):
        for replica in replicas:
            if replica.state is state and replica.reason:
                return _of_service(replica)
    if cut := observed.cut(s.workload.key for s in observed.services[revision.number]):
        return f"it waits: {cut}"
    starting = [r for r in replicas if r.state is ReplicaState.STARTING and r.reason]
    for replica in sorted(starting, key=lambda replica: not replica.build_log):
        return _of_service(replica)
    return f"revision {revision.number} is starting"


def _steady(observed: Observed, wanted_counts: Mapping[WorkloadKey, int]) -> tuple[str, str]:
    """The status of a revision that has stood once."""
    number = observed.deployment.latest.number
    mine = [r for r in observed.replicas if r.key.revision == number and r.state not in _DOWN]
    keys = [service.workload.key for service in observed.services[number]]
    unanswered = [
        key
        for key in keys
        if wanted_counts.get(key)
        and not any(r.key == key and r.state is ReplicaState.READY for r in mine)
    ]
    if not mine and not any(wanted_counts.get(key) for key in keys):
        switched = binary_of(observed.deployment.labels) is not None
        return "scaled-to-zero", "its queries keep it off" if switched else NO_REQUESTS
    unwell = [r for r in observed.replicas if r.key in unanswered and _is_ill(r)]
    if unwell:
        return "unhealthy", _of_service(unwell[0])
    if unanswered:
        waiting = next((_of_service(r) for r in mine if r.key in unanswered and r.reason), "")
        if cut := observed.cut(key for key in unanswered if not observed.most(key, 1)):
            waiting = f"it waits: {cut}"
        kept = any(s.policy.min_replicas for s in observed.services[number])
        status = "deploying" if kept else "scaled-to-zero"
        return status, waiting or f"waking: {counted(len(mine))} starting"
    ready = sum(r.state is ReplicaState.READY for r in mine)
    cut = observed.cut(keys)
    note = f"; {cut}" if cut else _without_room(mine)
    return "running", f"{counted(ready)} ready{note}"


def _of_service(replica: Replica) -> str:
    return f"service '{replica.key.service}': {ill(replica)}"


def _without_room(replicas: Sequence[Replica]) -> str:
    """What is said of replicas that are wanted and do not fit."""
    waiting = [r for r in replicas if r.state is ReplicaState.PENDING and r.reason]
    if not waiting:
        return ""
    wait = "waits" if len(waiting) == 1 else "wait"
    return f"; {counted(len(waiting))} {wait} for room: {waiting[0].reason}"


def _is_ill(replica: Replica) -> bool:
    return replica.state in (ReplicaState.FAILED, ReplicaState.BACKOFF, ReplicaState.UNREADY) or (
        replica.restarts > 0 and replica.state is not ReplicaState.READY
    )
