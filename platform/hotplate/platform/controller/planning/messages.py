"""Sentences for operators about a replica or a roll-out, with what to do; pure."""

from __future__ import annotations

import re

from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.platform.notices import TRIED
from hotplate.platform.store.records import Deployment

_OUTPUT = re.compile(r"; its log ends with: .*", re.DOTALL)
_FOLDERS = re.compile(r"(?:\bfile:/+|(?<![\w:/.])/)(?:[^\s/'\",;()]+/)+")
"""Of paths with a folder in them: `/readyz` is one of the service's, and so is what URLs have."""

_WHAT_NEXT = {
    ReplicaState.BACKOFF: "it is started again after a pause",
    ReplicaState.FAILED: "another try would fail too: fix that and deploy again",
    ReplicaState.UNREADY: "it gets no request until a check succeeds",
}


def ill(replica: Replica) -> str:
    """Why a replica does not serve, and what becomes of it."""
    next_step = _WHAT_NEXT.get(replica.state)
    return f"{replica.reason}; {next_step}" if next_step else replica.reason


def noticed(replica: Replica) -> str:
    """A replica has ended by itself, or fails its checks."""
    cut = replica.state is ReplicaState.BACKOFF and replica.ready_at is not None
    return (
        f"replica {replica.id}: {ill(replica)}; "
        + ("its requests were cut off; " if cut else "")
        + f"'hotplate logs {replica.key.deployment}' shows what it printed"
    )


def became_ready(replica: Replica) -> str:
    """A replica has started."""
    return f"replica {replica.id} is ready, {replica.cold_start_s:.1f} s after it was asked for"


def scaled(service: str, before: int, desired: int, reason: str) -> str:
    """The autoscaler wants another number of replicas than before."""
    return f"service '{service}' is scaled from {before} to {desired} replicas: {reason}"


def ready_again(replica: Replica) -> str:
    """A replica that was unready is ready again."""
    return f"replica {replica.id}: its readiness checks succeed again, and it gets requests"


def finishing(tasks: int, patience_s: float) -> str:
    """What a draining replica is waited for."""
    counted = "a task" if tasks == 1 else f"{tasks} tasks"
    return (
        f"it finishes {counted} first, {patience_s / 3600:.3g} h at most, and gets nothing new; "
        "the label hotplate/task-drain-s says how long a replaced one has, and terminating the "
        "deployment does not wait for tasks"
    )


def put_out(replica: str, reason: str) -> str:
    """A gateway sends nothing to a replica that is ready by its own word."""
    return f"replica {replica} gets no requests: {reason}; {TRIED}"


def let_in(replica: str, out_s: float) -> str:
    """It does again."""
    return f"replica {replica} gets requests again, after {out_s:.1f} s"


def to_callers(reason: str) -> str:
    """A reason without what callers must not see: a replica's output, the host's folders."""
    return without_folders(_OUTPUT.sub("", reason))


def without_folders(text: str) -> str:
    """The same with each path of the host's file system cut to the name of its file."""
    return _FOLDERS.sub("…/", text)


def counted(replicas: int) -> str:
    """A number of replicas in words."""
    return "1 replica" if replicas == 1 else f"{replicas} replicas"


def failed(deployment: Deployment, reason: str) -> str:
    """The latest revision cannot start."""
    said = (
        f"revision {deployment.latest.number}: {reason}; fix that and deploy again; "
        f"'hotplate logs {deployment.name}' shows what it printed"
    )
    if deployment.serving is None:
        return said
    return f"{said}; revision {deployment.serving.number} keeps serving"
