"""A deployment as it is right now, as JSON for status pages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from hotplate.deploy.engine import Replica
from hotplate.deploy.phases import Phase
from hotplate.platform.controller.deployment_state import DeploymentState
from hotplate.platform.controller.planning import messages
from hotplate.platform.controller.scaling.deciders import Recommendation
from hotplate.platform.spec.annotations import binary_of


def live_json(state: DeploymentState, replicas: Sequence[Replica]) -> dict[str, Any]:
    """{"services": [...], "replicas": [...]}, times as ISO 8601 in UTC, phases in Unix seconds."""
    services = []
    binary = binary_of(state.deployment.labels)
    for revision in state.kept():
        for service in state.services[revision.number]:
            policy, slots = service.policy, state.slots.of(service)
            about = {
                "revision": revision.number,
                "service": service.name,
                "min_replicas": policy.min_replicas,
                "max_replicas": policy.max_replicas,
                "concurrency": slots.number,
                "slots": slots.text(),
                "gpus": service.workload.resources.gpus,
            }
            if binary is not None and service.workload.entry:
                about |= {"min_replicas": 0, "max_replicas": binary.policy.replicas}
            route = state.route_of(service.workload.key)
            about["unserved"] = state.traffic.unserved.get(route, "")
            refusals = state.traffic.refusals.get(route)
            about["refused"] = dict(refusals.counts) if refusals else {}
            services.append(
                about | _recommendation_json(state.recommended.get(service.workload.key))
            )
    ordered = sorted(replicas, key=lambda r: (r.key, r.created_at))
    return {
        "services": services,
        "replicas": [_replica(r, state) for r in ordered],
    }


def _replica(replica: Replica, state: DeploymentState) -> dict[str, Any]:
    """A phase still under way has no end."""
    ejection = state.traffic.ejections.get(replica.id)
    tasks = state.tasks.get(replica.id)
    waited_for = messages.finishing(tasks, state.patience_s(replica)) if tasks else ""
    return {
        "id": replica.id,
        "uid": replica.uid,
        "node": replica.node,
        "revision": replica.key.revision,
        "service": replica.key.service,
        "state": "draining" if replica.id in state.draining else replica.state.value,
        "reason": replica.reason or waited_for,
        "slots": _slots(replica, state),
        "abandoned_handlers": state.traffic.abandoned.get(replica.id, 0),
        "out": ejection.reason if ejection else "",
        "out_since": _iso(ejection.since) if ejection else None,
        "restarts": replica.restarts,
        "cpus": replica.resources.cpus,
        "gpus": replica.resources.gpus,
        "memory_bytes": replica.memory_bytes,
        "created_at": _iso(replica.created_at),
        "ready_at": None if replica.ready_at is None else _iso(replica.ready_at),
        "wanted_at": _iso(replica.wanted_at),
        "cold_start_s": None if replica.ready_at is None else round(replica.cold_start_s, 3),
        "phases": [{**vars(phase), "lasted_s": _lasted_s(phase)} for phase in replica.phases],
        "log_tail": list(replica.log_tail),
    }


def _slots(replica: Replica, state: DeploymentState) -> dict[str, Any] | None:
    """`number` and `source`; `tasks` where those have so many of their own."""
    service = state.find(replica.key)
    if service is None:
        return None
    found = state.slots.of(service)
    described = {"number": state.slots.number(replica, service), "source": found.source}
    return described | ({"tasks": found.tasks} if found.tasks else {})


def phases_json(replica: Replica) -> list[dict[str, Any]]:
    """`name`, `start`, `end` and `share_s` of each phase, by start."""
    return [dict(vars(phase)) for phase in replica.phases]


def _lasted_s(phase: Phase) -> float | None:
    return None if phase.end is None else round(phase.end - phase.start, 3)


def _recommendation_json(recommendation: Recommendation | None) -> dict[str, Any]:
    if recommendation is None:
        return {"desired": None, "granted": None, "reason": "", "in_flight": 0, "queued": 0}
    return {
        "desired": recommendation.decision.desired,
        "granted": recommendation.granted,
        "reason": recommendation.reason,
        "in_flight": recommendation.demand.in_flight,
        "queued": recommendation.demand.queued,
    }


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
