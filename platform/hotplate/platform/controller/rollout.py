"""How the roll-out that was asked for last stands: for who waits for it, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.deploy.workload import WorkloadKey
from hotplate.platform.controller.deployment_state import DeploymentState
from hotplate.platform.controller.interface import Rollout
from hotplate.platform.controller.planning.messages import counted
from hotplate.platform.controller.planning.routing import public_name, version_of
from hotplate.platform.controller.planning.turnovers import phase_of, strategy_of
from hotplate.platform.controller.rollouts.comparison import Counted
from hotplate.platform.controller.rollouts.strategies import Phase
from hotplate.platform.store.records import Deployment, Revision, RolloutOutcome
from hotplate.serving.gateway.protocol.routes import ANSWER_KINDS
from hotplate.serving.gateway.protocol.version_shares import MAIN, WHOLE


def rollout_of(state: DeploymentState, replicas: Sequence[Replica]) -> Rollout:
    """`replicas` are the deployment's own, of any revision."""
    deployment = state.deployment
    latest = deployment.latest
    mine = [replica for replica in replicas if replica.key.revision == latest.number]
    over = state.settled.is_set()
    builds = dict.fromkeys(replica.build_log for replica in mine if replica.build_log)
    held_up = any(r.state in (ReplicaState.PENDING, ReplicaState.BACKOFF) for r in mine)
    return Rollout(
        reason=deployment.reason,
        over=over,
        failed=over and latest.outcome is RolloutOutcome.FAILED,
        log_tail=latest.log_tail if over else (),
        build_logs=tuple(builds),
        held_up=held_up or bool(builds) or bool(state.short),
    )


def rollout_json(
    state: DeploymentState, replicas: Sequence[Replica], answers: Counted
) -> dict[str, Any]:
    """`strategy`, `phase`, `from`, `to`, `reason`, `since` and `versions`: an entry for each
    revision that gets requests, is starting, or still finishes some. `replicas` are the
    deployment's own; `answers` those of its public route."""
    deployment = state.deployment
    latest = deployment.latest
    phase = phase_of(deployment, state.shift, replicas)
    since = latest.progress.get("since") if latest.progress.get("phase") == phase else None
    return {
        "strategy": strategy_of(latest).value,
        "phase": phase.value,
        "from": latest.progress.get("from"),
        "to": latest.number,
        "reason": _reason(deployment, phase, replicas),
        "since": (
            latest.created_at if since is None else datetime.fromtimestamp(since, UTC)
        ).isoformat(),
        "versions": [
            _version(state, revision, replicas, answers) for revision in _shown(state, replicas)
        ],
    }


def _shown(state: DeploymentState, replicas: Sequence[Replica]) -> list[int]:
    """The numbers of revisions, the latest first."""
    numbers = {revision.number for revision in state.kept()}
    return sorted(numbers | {replica.key.revision for replica in replicas}, reverse=True)


def _reason(deployment: Deployment, phase: Phase, replicas: Sequence[Replica]) -> str:
    number = deployment.latest.number
    if phase is Phase.DONE:
        return f"revision {number} has all requests"
    if phase is Phase.DRAINING and deployment.serving == deployment.latest:
        before = sum(replica.key.revision != number for replica in replicas)
        finish = "finishes its" if before == 1 else "finish their"
        return f"revision {number} has all requests; {counted(before)} of before {finish} last ones"
    return deployment.reason


def _version(
    state: DeploymentState, number: int, replicas: Sequence[Replica], answers: Counted
) -> dict[str, Any]:
    key = next((s.workload.key for s in state.services.get(number, ()) if s.workload.entry), None)
    mine = [r for r in replicas if r.key == key and r.id not in state.draining]
    revision = next((each for each in state.kept() if each.number == number), None)
    counts = answer_counts(answers, version_of(state.deployment, number))
    return {
        "version": state.deployment.version or MAIN,
        "revision": number,
        "bento": _bento(state, revision, key),
        "weight": WHOLE,
        "share": _share(state, number),
        "wanted": 0 if key is None else state.targets.get(key, 0),
        "ready": sum(r.state is ReplicaState.READY for r in mine),
        "answers": counts,
        "answered": sum(counts.values()),
        "failed": counts["5xx"] + counts["broken"],
    }


def _bento(state: DeploymentState, revision: Revision | None, key: WorkloadKey | None) -> str:
    if revision is not None:
        return revision.bento.tag
    service = None if key is None else state.find(key)
    return (
        "" if service is None else f"{service.workload.bento_name}:{service.workload.bento_version}"
    )


def _share(state: DeploymentState, number: int) -> float:
    """The part of new requests that it gets: that of the slots of all that get any."""
    slots = Counter[str]()
    for route in state.routes:
        if route.name == public_name(state.deployment):
            for replica in route.replicas:
                slots[replica.version] += 0 if replica.draining else replica.concurrency
    return slots[version_of(state.deployment, number)] / slots.total() if slots.total() else 0.0


def weigh(versions: Sequence[dict[str, Any]], weights: Mapping[str, int]) -> None:
    """Give each version its weight, and its share of all requests instead of that of its own:
    `main` has what the others leave."""
    rest = WHOLE - sum(weights.values())
    for each in versions:
        each["weight"] = rest if each["version"] == MAIN else weights.get(each["version"], 0)
        each["share"] *= each["weight"] / WHOLE


def answer_counts(answers: Counted, version: str) -> Mapping[str, int]:
    """The answers of a version since its gateways started, by kind."""
    counts = Counter[str]()
    for versions in answers.values():
        counts.update(versions.get(version, {}))
    return {kind: counts[kind] for kind in ANSWER_KINDS}
