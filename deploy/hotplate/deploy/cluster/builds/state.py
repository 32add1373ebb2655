"""How a build stands, by what its Job, its pod and the warnings about both say; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hotplate.deploy.cluster.builds.objects import CONTAINER
from hotplate.deploy.cluster.builds.spec import BuildEnd, BuildOutcome, BuildSettings
from hotplate.deploy.cluster.objects import Manifest
from hotplate.deploy.cluster.pods import KILLED, NO_IMAGE, NOT_MADE, condition, warned

DEADLINE = "DeadlineExceeded"
EVICTED = "Evicted"
OWN_LIMITS = ("exceeds the total limit", "exceeds the limit", "exceeded its local ephemeral")
"""What a kubelet says of a pod that has used more disk than it may, and not of a disk that is
full."""
NOT_BEGUN = frozenset(["StartError", "ContainerCannotRun"])
MOST_WORDS = 1000
"""Characters of somebody else's sentence."""


@dataclass(frozen=True)
class JobState:
    """How one build stands."""

    waits_for: str = ""
    """Why its program does not run yet; empty = it does, or has."""
    prints: bool = False
    """Whether its program has begun, so that there is a log."""
    outcome: BuildOutcome | None = None
    """None = it goes on."""


def state_of(
    job: Manifest,
    pod: Manifest | None,
    told: Sequence[Manifest],
    settings: BuildSettings,
) -> JobState:
    """How it stands; `told` are the events about its Job and its pod, the last one first."""
    status = {} if pod is None else pod.get("status") or {}
    container = _container(status)
    current = container.get("state") or {}
    ended, begun = current.get("terminated"), "running" in current or "terminated" in current
    waits_for = "" if begun else _waits_for(status, container, told)
    outcome = _outcome(job, status, ended, waits_for, settings)
    if outcome is None and pod is not None and "deletionTimestamp" in pod["metadata"]:
        waits_for = "Its pod was deleted, and ends."
    return JobState(waits_for, begun, outcome)


def _outcome(
    job: Manifest,
    status: Mapping[str, Any],
    ended: Mapping[str, Any] | None,
    waits_for: str,
    settings: BuildSettings,
) -> BuildOutcome | None:
    about = job.get("status") or {}
    if condition(about, "Complete").get("status") == "True":
        return BuildOutcome(BuildEnd.DONE)
    if ended is not None:
        if not ended.get("exitCode"):
            return BuildOutcome(BuildEnd.DONE)
        if (said := _said_itself(ended.get("message", ""))) is not None:
            return said
    over = _failed(about)
    if DEADLINE in over:
        return _late(waits_for, settings)
    if status.get("reason") == EVICTED:
        return _evicted(str(status.get("message", "")), settings)
    if ended is not None and (sentence := _crashed(ended, settings)):
        return BuildOutcome(BuildEnd.FAILED, sentence)
    if over:
        return BuildOutcome(BuildEnd.KILLED, _killed(status))
    return None


def _failed(about: Mapping[str, Any]) -> frozenset[str]:
    """Why the Job has failed, or is about to: the first word comes before its pods have ended."""
    found = (condition(about, kind) for kind in ("FailureTarget", "Failed"))
    return frozenset(
        str(each.get("reason") or "Failed") for each in found if each.get("status") == "True"
    )


def _said_itself(message: str) -> BuildOutcome | None:
    """What the build's program has said of its failure. It is that of whoever is built for."""
    try:
        said = json.loads(message)
        sentence = str(said["sentence"])[:MOST_WORDS]
        retry, no_room = said.get("retry") is True, said.get("no_room") is True
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return BuildOutcome(BuildEnd.FAILED, sentence, retry, no_room)


def _late(waits_for: str, settings: BuildSettings) -> BuildOutcome:
    if waits_for:
        why = waits_for.rstrip(".")
        sentence = f"The build did not begin within {settings.timeout_s:g} s (build_timeout_s): "
        return BuildOutcome(BuildEnd.FAILED, f"{sentence}{why}.", retry=True)
    sentence = (
        f"Building the environment took longer than {settings.timeout_s:g} s (build_timeout_s); "
        "find out in its log what it waits for, or raise the limit."
    )
    return BuildOutcome(BuildEnd.FAILED, sentence)


def _evicted(said: str, settings: BuildSettings) -> BuildOutcome:
    if any(words in said for words in OWN_LIMITS):
        sentence = (
            "Building the environment used more disk than builds may, which is "
            f"{settings.disk_bytes >> 20} MiB, and half of it for what it installs "
            "(build_disk_bytes); have it use less, or raise the limit."
        )
        return BuildOutcome(BuildEnd.FAILED, sentence)
    return BuildOutcome(BuildEnd.KILLED, f"Its node has evicted it: {said[:MOST_WORDS]}")


def _crashed(ended: Mapping[str, Any], settings: BuildSettings) -> str:
    """Why its program has ended without a word; empty where somebody else may have killed it."""
    reason, code = ended.get("reason"), ended.get("exitCode")
    if reason == "OOMKilled":
        return (
            f"Building the environment used more than the {settings.memory_bytes >> 20} MiB of "
            "memory that builds may (build_memory_bytes); have it use less, or raise the limit."
        )
    if reason in NOT_BEGUN:
        said = str(ended.get("message", ""))[:MOST_WORDS]
        return f"The runtime image cannot begin a build; check what it has in it: {said}"
    if code in KILLED or ended.get("signal"):
        return ""
    return f"The build ended with exit status {code} and said nothing; its output is in the log."


def _killed(status: Mapping[str, Any]) -> str:
    said = status.get("message") or condition(status, "DisruptionTarget").get("message")
    return f"Its pod was killed: {str(said)[:MOST_WORDS]}" if said else "Its pod was killed."


def _waits_for(
    status: Mapping[str, Any], container: Mapping[str, Any], told: Sequence[Manifest]
) -> str:
    scheduled = condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        return f"No node takes it: {scheduled.get('message', '')}"
    if not scheduled:
        refused = warned(told)
        return f"The cluster makes no pod: {refused}" if refused else "It waits for the scheduler."
    waiting = (container.get("state") or {}).get("waiting") or {}
    said = waiting.get("message", "")
    if waiting.get("reason") in NO_IMAGE:
        return f"The image {container.get('image', '')} is not there: {said}"
    if waiting.get("reason") in NOT_MADE:
        return f"Its container cannot be made: {said}"
    return warned(told) or "Its node prepares it."


def _container(status: Mapping[str, Any]) -> Mapping[str, Any]:
    found = (each for each in status.get("containerStatuses") or () if each["name"] == CONTAINER)
    return next(found, {})
