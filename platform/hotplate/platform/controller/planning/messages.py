"""What an operator is told of a replica or a roll-out, and what to do; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.platform.store.records import Deployment
from hotplate.serving.gateway.errors import (
    DeadlineExceeded,
    NoCapacity,
    NotReady,
    ReplicaFailed,
    ShareFull,
    TasksAway,
    TooManyConnections,
)

_OUTPUT = re.compile(r"; its log ends with: .*", re.DOTALL)
_FOLDERS = re.compile(r"(?:\bfile:/+|(?<![\w:/.])/)(?:[^\s/'\",;()]+/)+")
"""Of paths with a folder in them: `/readyz` is one of the service's, and so is what URLs have."""

_WHAT_NEXT = {
    ReplicaState.BACKOFF: "it is started again after a pause",
    ReplicaState.FAILED: "trying again would not help: mend that and deploy again",
    ReplicaState.UNREADY: "it gets no request until a check succeeds",
}

_TRIED = "it is tried every 5 s or oftener, and gets requests when it answers"

_SERVE_MORE = "more replicas (scaling.max_replicas) or slots (traffic.concurrency) serve more"
_SEE_EVENTS = "'hotplate events {name}' says what became of its replicas"
REFUSED = {
    ShareFull.code: ("no room in the queue", _SERVE_MORE),
    NoCapacity.code: ("no answer in time to be expected", _SERVE_MORE),
    DeadlineExceeded.code: ("out of time", _SERVE_MORE),
    NotReady.code: ("no replica became ready in time", _SEE_EVENTS),
    ReplicaFailed.code: ("their replica died", _SEE_EVENTS),
    TooManyConnections.code: (
        "too many connections",
        "callers should keep theirs, or close what they do not use",
    ),
    TasksAway.code: ("tasks could not be kept", "'hotplate status' says what is short"),
}
"""Why requests were refused, and what to do, by error code; a caller's own faults are not here."""


def ill(replica: Replica) -> str:
    """Why a replica does not serve, and what becomes of it."""
    next_step = _WHAT_NEXT.get(replica.state)
    return f"{replica.reason}; {next_step}" if next_step else replica.reason


def noticed(replica: Replica) -> str:
    """A replica has ended by itself, or fails its checks."""
    cut = replica.state is ReplicaState.BACKOFF and replica.ready_at is not None
    return (
        f"replica {replica.id}: {ill(replica)}; "
        + ("requests that it had were cut; " if cut else "")
        + f"'hotplate logs {replica.key.deployment}' shows what it printed"
    )


def became_ready(replica: Replica) -> str:
    """A replica has started."""
    return f"replica {replica.id} is ready, {replica.cold_start_s:.1f} s after it was asked for"


def scaled(service: str, before: int, desired: int, reason: str) -> str:
    """The autoscaler wants another number of replicas than before."""
    return f"service '{service}' is scaled from {before} to {desired} replicas: {reason}"


def ready_again(replica: Replica) -> str:
    """One that was unready is not any more."""
    return f"replica {replica.id}: its readiness checks succeed again, and it gets requests"


def finishing(tasks: int, patience_s: float) -> str:
    """What a draining replica is waited for."""
    counted = "a task" if tasks == 1 else f"{tasks} tasks"
    return (
        f"it finishes {counted} first, {patience_s / 3600:.3g} h at most, and gets nothing new; "
        "the label hotplate/task-drain-s says how long a replaced one has, and who terminates the "
        "deployment does not wait"
    )


def put_out(replica: str, reason: str) -> str:
    """A gateway sends nothing to a replica that is ready by its own word."""
    return f"replica {replica} gets no requests: {reason}; {_TRIED}"


def let_in(replica: str, out_s: float) -> str:
    """It does again."""
    return f"replica {replica} gets requests again, after {out_s:.1f} s"


def out(reason: str, since: str) -> str:
    """The same on a page, where the replica is named already."""
    return f"no requests since {since}: {reason}; {_TRIED}"


def abandoned(handlers: int) -> str:
    """WebSockets of a replica whose slots have been given again."""
    counted = "1 abandoned handler" if handlers == 1 else f"{handlers} abandoned handlers"
    return f"{counted}: WebSockets that go on though their callers have gone"


def refused(deployment: str, counts: Mapping[str, int]) -> str:
    """How many requests of each error code a gateway refused, and what to do."""
    each, advice = [], []
    for code, count in sorted(counts.items(), key=lambda item: -item[1]):
        why, what_next = REFUSED.get(code, ("", ""))
        each.append(f"{count} {code} ({why})" if why else f"{count} {code}")
        advice.append(what_next.format(name=deployment))
    return "; ".join([f"{', '.join(each)}", *dict.fromkeys(filter(None, advice))])


def to_callers(reason: str) -> str:
    """A reason without what is nobody's who only calls: a replica's output, the host's folders."""
    return without_folders(_OUTPUT.sub("", reason))


def without_folders(text: str) -> str:
    """The same with each path of the host's file system cut to the name of its file."""
    return _FOLDERS.sub("…/", text)


def counted(replicas: int) -> str:
    return "1 replica" if replicas == 1 else f"{replicas} replicas"


def failed(deployment: Deployment, reason: str) -> str:
    """The latest revision cannot start."""
    said = (
        f"revision {deployment.latest.number}: {reason}; mend that and deploy again; "
        f"'hotplate logs {deployment.name}' shows what it printed"
    )
    if deployment.serving is None:
        return said
    return f"{said}; revision {deployment.serving.number} goes on serving"
