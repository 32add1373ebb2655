"""What a pod says of itself, as a replica; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hotplate.deploy.cluster import names
from hotplate.deploy.cluster.objects import GPU, PORT, Manifest
from hotplate.deploy.cluster.pod_spec import PodReport
from hotplate.deploy.cluster.pod_times import PodTimes, has_been_ready, seconds, times_of
from hotplate.deploy.cluster.quantities import cpus, size_bytes
from hotplate.deploy.engine import Node, Replica, ReplicaState
from hotplate.deploy.process.exit_messages import with_last_line
from hotplate.deploy.workload import Resources, WorkloadKey

CRASHED = "CrashLoopBackOff"
NO_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
SLOW_S = 10
"""How long a kubelet may take to begin an end, and to see it."""
KILLED = (137, 143)
"""How a container ends that is told to, and one that is killed then."""
NOT_MADE = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})


def replica_of(
    pod: Manifest,
    events: Iterable[Manifest] = (),
    report: PodReport | None = None,
    sharpened: Callable[[PodTimes], PodTimes] = lambda times: times,
) -> Replica | None:
    """The replica that a pod is; None = it is nobody's. `events` are those that tell of it,
    `report` is what its program has said; `sharpened` tells its times closer than the cluster."""
    meta, status = pod["metadata"], pod.get("status") or {}
    key = names.key_in(meta.get("annotations") or {})
    if key is None:
        return None
    container = _container(status)
    state, reason = _state(pod, container, list(events))
    times = sharpened(times_of(pod, container))
    ended = state is ReplicaState.BACKOFF or (not container.get("ready") and _ended(container))
    address = status.get("podIP", "")
    return Replica(
        id=meta["name"],
        key=key,
        state=state,
        reason=reason,
        uid=meta["uid"],
        node=pod["spec"].get("nodeName", ""),
        shared_name=pod["spec"].get("serviceAccountName", ""),
        address=f"{address}:{PORT}" if address else "",
        resources=resources_of(pod),
        restarts=restarts_of(pod),
        created_at=seconds(meta["creationTimestamp"]),
        ready_at=times.ready_at,
        phases=times.phases(report),
        phases_known=report is not None,
        self_report=report.about if report is not None else None,
        log_tail=_last_lines(container) if ended else (),
    )


def restarts_of(pod: Manifest) -> int:
    """How often its container has started again."""
    return int(_container(pod.get("status") or {}).get("restartCount", 0))


def printed_before(pod: Manifest) -> bool:
    """Whether a container has ended before the one whose log the cluster gives."""
    container = _container(pod.get("status") or {})
    return _ended(container) and "waiting" not in (container.get("state") or {})


def late(limit_s: float, reason: str) -> str:
    """The sentence about one that has taken too long."""
    why = f" ({reason.rstrip('.')})" if reason else ""
    return (
        f"It was not ready within its cold_start_timeout of {limit_s:g} s{why}: check what its "
        "start waits for, or raise the limit."
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
    scheduled = condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        return ReplicaState.PENDING, f"No node takes it: {scheduled.get('message', '')}"
    if not scheduled:
        return ReplicaState.STARTING, "It waits for the scheduler."
    current = container.get("state") or {}
    if waiting := current.get("waiting"):
        return _waiting(waiting, container, events, pod)
    if "terminated" in current:
        return ReplicaState.BACKOFF, _how_it_ended(container, pod)
    if container.get("ready") and condition(status, "Ready").get("status") == "True":
        return ReplicaState.READY, ""
    if has_been_ready(status, container):
        return ReplicaState.UNREADY, "Its readiness check fails."
    if "running" in current:
        return ReplicaState.STARTING, _starting(pod, container)
    return ReplicaState.STARTING, warned(events) or "Its node prepares it."


def _starting(pod: Manifest, container: Mapping[str, Any]) -> str:
    now = "Its program has started and is not ready yet."
    return f"{now} Before: {_how_it_ended(container, pod)}" if _ended(container) else now


def _lateness(pod: Manifest, ended: Mapping[str, Any]) -> str:
    """The sentence about a container that its kubelet has ended because it was not ready in time;
    empty where it was not that."""
    probes = [each.get("startupProbe") or {} for each in pod["spec"]["containers"]]
    limit_s = max((float(each.get("failureThreshold", 0)) for each in probes), default=0.0)
    if not limit_s or ended.get("exitCode") not in KILLED or not ended.get("startedAt"):
        return ""
    lasted_s = seconds(ended["finishedAt"]) - seconds(ended["startedAt"])
    grace_s = pod["spec"].get("terminationGracePeriodSeconds", 0) + SLOW_S
    return late(limit_s, "") if limit_s <= lasted_s <= limit_s + grace_s else ""


def _waiting(
    waiting: Mapping[str, Any],
    container: Mapping[str, Any],
    events: Sequence[Manifest],
    pod: Manifest,
) -> tuple[ReplicaState, str]:
    why, said = waiting.get("reason", ""), waiting.get("message", "")
    if why == CRASHED:
        return ReplicaState.BACKOFF, _how_it_ended(container, pod)
    if why in NO_IMAGE:
        return ReplicaState.STARTING, f"The image {container.get('image', '')} is not there: {said}"
    if why in NOT_MADE:
        return ReplicaState.STARTING, f"Its container cannot be made: {said}"
    return ReplicaState.STARTING, warned(events) or "Its node prepares it."


def warned(events: Sequence[Manifest]) -> str:
    """What was warned of last, mostly by a node of a volume; empty where nothing was."""
    warnings = (each for each in events if each.get("type") == "Warning")
    return next((each.get("message", "") for each in warnings), "")


def _how_it_ended(container: Mapping[str, Any], pod: Manifest) -> str:
    ended = _last_end(container)
    if ended.get("reason") == "OOMKilled":
        return "It used more memory than it asked for, and was killed."
    if lateness := _lateness(pod, ended):
        return lateness
    if signal := ended.get("signal"):
        return f"It was ended by signal {signal}."
    status = f"It ended with exit status {ended.get('exitCode', 'unknown')}."
    return with_last_line(status, _last_lines(container))


def _ended(container: Mapping[str, Any]) -> bool:
    return "terminated" in (container.get("lastState") or {})


def _last_lines(container: Mapping[str, Any]) -> tuple[str, ...]:
    """Of its container that ended last: the kubelet keeps the end of its log with it."""
    return tuple(str(_last_end(container).get("message", "")).splitlines())


def _last_end(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """How its container ended that ended last; empty where none has."""
    places = (container.get(place) or {} for place in ("state", "lastState"))
    return next((place["terminated"] for place in places if place.get("terminated")), {})


def _container(status: Mapping[str, Any]) -> Mapping[str, Any]:
    found = [each for each in status.get("containerStatuses") or () if each["name"] == "replica"]
    return found[0] if found else {}


def condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """What the status of an object says of that condition; empty where nothing."""
    return next((each for each in status.get("conditions") or () if each["type"] == kind), {})


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
