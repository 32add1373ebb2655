"""What a pod says of itself, as a replica; pure.

Times of a cluster are whole seconds of its own clocks: they are compared with each other alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from hotplate.deploy.cluster import names
from hotplate.deploy.cluster.objects import GPU, PORT, Manifest
from hotplate.deploy.cluster.quantities import cpus, size_bytes
from hotplate.deploy.engine import Node, Replica, ReplicaState
from hotplate.deploy.phases import Phase, merge
from hotplate.deploy.workload import Resources, WorkloadKey

CRASHED = "CrashLoopBackOff"
NO_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
NOT_MADE = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})


def replica_of(pod: Manifest, events: Iterable[Manifest] = ()) -> Replica | None:
    """The replica that a pod is; `events` are those that tell of it. None = it is nobody's."""
    meta, status = pod["metadata"], pod.get("status") or {}
    key = names.key_in(meta.get("annotations") or {})
    if key is None:
        return None
    container = _container(status)
    state, reason = _state(pod, container, list(events))
    ready_at = _since(status, "Ready") if state is ReplicaState.READY else None
    ended = state is ReplicaState.BACKOFF or (not container.get("ready") and _ended(container))
    address = status.get("podIP", "")
    return Replica(
        id=meta["name"],
        key=key,
        state=state,
        reason=reason,
        uid=meta["uid"],
        node=pod["spec"].get("nodeName", ""),
        address=f"{address}:{PORT}" if address else "",
        resources=resources_of(pod),
        restarts=container.get("restartCount", 0),
        created_at=_seconds(meta["creationTimestamp"]),
        ready_at=ready_at,
        phases=_phases(pod, container, ready_at),
        log_tail=_last_lines(container) if ended else (),
    )


def refused(key: WorkloadKey, name: str, reason: str, resources: Resources) -> Replica:
    """One that is wanted and of which the cluster has no pod."""
    return Replica(id=name, key=key, state=ReplicaState.PENDING, reason=reason, resources=resources)


def refusal(deployment: Manifest) -> str:
    """Why the cluster does not make its pods, in its own words; empty = it does."""
    for condition in (deployment.get("status") or {}).get("conditions") or ():
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            return f"The cluster refuses the pod: {condition.get('message', '')}"
    return ""


def is_over(pod: Manifest) -> bool:
    """Whether it has ended for good, as one that was evicted: another one stands for it."""
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def is_ending(pod: Manifest) -> bool:
    """Whether somebody has deleted it; it ends what it has begun."""
    return "deletionTimestamp" in pod["metadata"]


def resources_of(pod: Manifest) -> Resources:
    """What it is counted with."""
    asked: dict[str, Any] = {}
    for container in pod["spec"]["containers"]:
        asked |= (container.get("resources") or {}).get("requests") or {}
    has_limit = any((c.get("resources") or {}).get("limits") for c in pod["spec"]["containers"])
    memory_bytes = size_bytes(asked.get("memory")) if has_limit else 0
    return Resources(cpus(asked.get("cpu", 0)), memory_bytes, cpus(asked.get(GPU, 0)))


def told_of(events: Iterable[Manifest]) -> Mapping[str, Sequence[Manifest]]:
    """Events by the uid of the pod that they tell of, the last one first."""
    told: dict[str, list[Manifest]] = {}
    for event in sorted(events, key=_told_at, reverse=True):
        told.setdefault(event["involvedObject"].get("uid", ""), []).append(event)
    return told


def _told_at(event: Manifest) -> str:
    return event.get("lastTimestamp") or event.get("eventTime") or ""


def _state(
    pod: Manifest, container: Mapping[str, Any], events: Sequence[Manifest]
) -> tuple[ReplicaState, str]:
    status = pod.get("status") or {}
    if is_ending(pod):
        return ReplicaState.STOPPING, "it was told to end"
    if is_over(pod):
        said = status.get("message") or status.get("reason") or "its pod has ended"
        return ReplicaState.STOPPING, said
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        return ReplicaState.PENDING, f"No node takes it: {scheduled.get('message', '')}"
    if not scheduled:
        return ReplicaState.PENDING, "It waits for the scheduler."
    current = container.get("state") or {}
    if waiting := current.get("waiting"):
        return _waiting(waiting, container, events)
    if "terminated" in current:
        return ReplicaState.BACKOFF, _how_it_ended(current["terminated"])
    if container.get("ready") and _condition(status, "Ready").get("status") == "True":
        return ReplicaState.READY, ""
    if container.get("started"):
        return ReplicaState.UNREADY, "Its readiness check fails."
    if "running" in current:
        return ReplicaState.STARTING, "Its program has started and is not ready yet."
    return ReplicaState.STARTING, _said(events) or "Its node prepares it."


def _waiting(
    waiting: Mapping[str, Any], container: Mapping[str, Any], events: Sequence[Manifest]
) -> tuple[ReplicaState, str]:
    why, said = waiting.get("reason", ""), waiting.get("message", "")
    if why == CRASHED:
        last = (container.get("lastState") or {}).get("terminated") or {}
        return ReplicaState.BACKOFF, _how_it_ended(last)
    if why in NO_IMAGE:
        return ReplicaState.STARTING, f"The image {container.get('image', '')} is not there: {said}"
    if why in NOT_MADE:
        return ReplicaState.STARTING, f"Its container cannot be made: {said}"
    return ReplicaState.STARTING, _said(events) or "Its node prepares it."


def _said(events: Sequence[Manifest]) -> str:
    """What a node has warned of last: mostly of a volume."""
    warnings = (each for each in events if each.get("type") == "Warning")
    return next((each.get("message", "") for each in warnings), "")


def _how_it_ended(ended: Mapping[str, Any]) -> str:
    if ended.get("reason") == "OOMKilled":
        return "It used more memory than it asked for, and was killed."
    if signal := ended.get("signal"):
        return f"It was ended by signal {signal}."
    return f"It ended with exit status {ended.get('exitCode', 'unknown')}."


def _ended(container: Mapping[str, Any]) -> bool:
    return "terminated" in (container.get("lastState") or {})


def _last_lines(container: Mapping[str, Any]) -> tuple[str, ...]:
    """Of its container that ended last: the kubelet keeps the end of its log with it."""
    for place in ("state", "lastState"):
        if ended := (container.get(place) or {}).get("terminated"):
            return tuple(str(ended.get("message", "")).splitlines())
    return ()


def _container(status: Mapping[str, Any]) -> Mapping[str, Any]:
    found = [each for each in status.get("containerStatuses") or () if each["name"] == "replica"]
    return found[0] if found else {}


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((each for each in status.get("conditions") or () if each["type"] == kind), {})


def _since(status: Mapping[str, Any], kind: str) -> float | None:
    at = _condition(status, kind).get("lastTransitionTime")
    return None if at is None else _seconds(at)


def _phases(
    pod: Manifest, container: Mapping[str, Any], ready_at: float | None
) -> tuple[Phase, ...]:
    """Instance until it has a node, environment until its program runs, then the process. What the
    program itself says comes on top of it."""
    created = _seconds(pod["metadata"]["creationTimestamp"])
    scheduled = _condition(pod.get("status") or {}, "PodScheduled")
    if scheduled.get("status") != "True":
        return (Phase("instance", created),)
    placed_at = max(created, _seconds(scheduled["lastTransitionTime"]))
    noted = [Phase("instance", created, placed_at)]
    running = (container.get("state") or {}).get("running")
    if running is None:
        return (*noted, Phase("environment", placed_at))
    begun_at = max(placed_at, _seconds(running["startedAt"]))
    if ready_at is not None:
        begun_at = min(begun_at, ready_at)
    noted += [Phase("environment", placed_at, begun_at), Phase("process", begun_at)]
    return merge(noted, [Phase("init", begun_at)], ready_at)


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def nodes(found: Iterable[Manifest], pods: Iterable[Manifest]) -> Mapping[str, Node]:
    """What each node has for pods, and what ours hold of it."""
    taken: dict[str, Resources] = {}
    for pod in pods:
        if not is_over(pod) and (name := pod["spec"].get("nodeName")):
            held = taken.get(name, Resources())
            own = resources_of(pod)
            taken[name] = Resources(
                held.cpus + own.cpus,
                held.memory_bytes + own.memory_bytes,
                held.gpus + own.gpus,
            )
    return {
        node["metadata"]["name"]: _node(node, taken.get(node["metadata"]["name"], Resources()))
        for node in found
    }


def _node(node: Manifest, taken: Resources) -> Node:
    given = (node.get("status") or {}).get("allocatable") or {}
    there = cpus(given.get("cpu", 0))
    in_all = Resources(there, size_bytes(given.get("memory")), cpus(given.get(GPU, 0)))
    return Node(in_all, taken, there, node["metadata"].get("labels") or {})
