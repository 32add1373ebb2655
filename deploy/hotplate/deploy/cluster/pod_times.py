"""When what happened to a pod, by one clock; pure.

Times of a cluster are whole seconds: when the engine saw something first says it closer. Who made
a pod and who gave it a node go by the cluster's clock, its kubelet by its node's, which may be
hours off: where that shows, its times are moved.
What the pod's program reports of its start are durations by a clock of its own; they are laid
between these times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, overload

from hotplate.deploy.cluster.objects import Manifest
from hotplate.deploy.cluster.pod_spec import PodReport
from hotplate.deploy.phases import Phase, merge

NOISE_S = 3.0
"""Whole seconds, and how long a kubelet takes to tell, look like clocks that differ by so much."""
KUBELET = "kubelet"
_WHOLE_S = 1.0


@dataclass(frozen=True)
class PodTimes:
    """Unix seconds by the cluster's clock; None = it has not happened."""

    created_at: float
    placed_at: float | None = None
    """When it was given a node."""
    begun_at: float | None = None
    """When its program was started last."""
    ready_at: float | None = None

    def seen(self, at: float, before: PodTimes | None = None) -> PodTimes:
        """When each of its times was seen first: now, Unix seconds, or as it was noted before."""
        first = before or PodTimes(at)
        return PodTimes(
            first.created_at,
            self.placed_at and (first.placed_at or at),
            self.begun_at and (first.begun_at or at),
            self.ready_at and (first.ready_at or at),
        )

    def sharpened(self, seen: PodTimes) -> PodTimes:
        """The same to the fraction of a second at which each was seen first, as far as that is
        within the second that the cluster names; in the same order."""
        created_at = _within_its_second(self.created_at, seen.created_at)
        placed_at = _within_its_second(self.placed_at, seen.placed_at, created_at)
        begun_at = _within_its_second(self.begun_at, seen.begun_at, placed_at or created_at)
        last = begun_at or placed_at or created_at
        return PodTimes(
            created_at, placed_at, begun_at, _within_its_second(self.ready_at, seen.ready_at, last)
        )

    def phases(self, report: PodReport | None = None) -> tuple[Phase, ...]:
        """Instance until it has a node, environment until its program runs, then what that says."""
        if self.placed_at is None:
            return (Phase("instance", self.created_at),)
        noted = [Phase("instance", self.created_at, self.placed_at)]
        if self.begun_at is None:
            return (*noted, Phase("environment", self.placed_at))
        begun_at, told = self.begun_at, tuple(report.phases) if report else ()
        if self.ready_at is not None:
            ends = [phase.end for phase in told if phase.name == "init" and phase.end is not None]
            lasted_s = max(ends, default=0.0)
            begun_at = max(self.placed_at, min(begun_at, self.ready_at - lasted_s))
        noted += [Phase("environment", self.placed_at, begun_at), Phase("process", begun_at)]
        own = [_moved(phase, begun_at) for phase in told] or [Phase("init", begun_at)]
        return merge(noted, own, self.ready_at)


def times_of(pod: Manifest, container: Mapping[str, Any]) -> PodTimes:
    """Those of a pod with this status of its container. One whose container has started again is as
    old as that."""
    status, created_at = pod.get("status") or {}, seconds(pod["metadata"]["creationTimestamp"])
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") != "True":
        return PodTimes(created_at)
    placed_at = max(created_at, seconds(scheduled["lastTransitionTime"]))
    running = (container.get("state") or {}).get("running")
    if running is None:
        return PodTimes(created_at, placed_at)
    ahead_s = _clock_ahead_s(pod, container, placed_at)
    begun_at = max(placed_at, seconds(running["startedAt"]) - ahead_s)
    if container.get("restartCount"):
        created_at = placed_at = begun_at
    if not container.get("ready"):
        was_ready = has_been_ready(status, container)
        return PodTimes(created_at, placed_at, begun_at, begun_at if was_ready else None)
    ready = _condition(status, "Ready")
    if ready.get("status") != "True":
        return PodTimes(created_at, placed_at, begun_at)
    ready_at = max(placed_at, seconds(ready["lastTransitionTime"]) - ahead_s)
    return PodTimes(created_at, placed_at, min(begun_at, ready_at), ready_at)


def has_been_ready(status: Mapping[str, Any], container: Mapping[str, Any]) -> bool:
    """Whether a container that is not ready now was so since it has started: then it lost that
    later. One whose startup probe has passed is ready a moment later."""
    running = (container.get("state") or {}).get("running")
    ready = _condition(status, "Ready")
    if running is None or not container.get("started") or not ready.get("lastTransitionTime"):
        return False
    return seconds(ready["lastTransitionTime"]) > seconds(running["startedAt"])


def seconds(at: str) -> float:
    """Unix seconds."""
    return datetime.fromisoformat(at).timestamp()


@overload
def _within_its_second(at: float, seen_at: float | None, first: float = 0.0) -> float: ...
@overload
def _within_its_second(
    at: float | None, seen_at: float | None, first: float = 0.0
) -> float | None: ...
def _within_its_second(at: float | None, seen_at: float | None, first: float = 0.0) -> float | None:
    if at is None:
        return None
    return max(first, min(max(at if seen_at is None else seen_at, at), at + _WHOLE_S))


def _moved(phase: Phase, by_s: float) -> Phase:
    end = None if phase.end is None else phase.end + by_s
    return Phase(phase.name, phase.start + by_s, end)


def _clock_ahead_s(pod: Manifest, container: Mapping[str, Any], placed_at: float) -> float:
    """How far the clock of its node is ahead of the cluster's, as far as that is sure: the server
    notes itself when the kubelet wrote last, which can tell of nothing later; and the kubelet has
    heard of no pod before it had a node."""
    status = pod.get("status") or {}
    written = [
        seconds(each["time"])
        for each in pod["metadata"].get("managedFields") or ()
        if each.get("manager") == KUBELET and "time" in each
    ]
    told = max(_told(status, container), default=0.0)
    if written and told - max(written) > NOISE_S:
        return told - max(written)
    heard = status.get("startTime")
    if heard is not None and placed_at - seconds(heard) > NOISE_S:
        return seconds(heard) - placed_at
    return 0.0


def _told(status: Mapping[str, Any], container: Mapping[str, Any]) -> Iterator[float]:
    """All times that are the kubelet's."""
    for condition in status.get("conditions") or ():
        if condition["type"] != "PodScheduled" and condition.get("lastTransitionTime"):
            yield seconds(condition["lastTransitionTime"])
    for state in ("state", "lastState"):
        for about in (container.get(state) or {}).values():
            yield from (seconds(about[at]) for at in ("startedAt", "finishedAt") if about.get(at))


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((each for each in status.get("conditions") or () if each["type"] == kind), {})
