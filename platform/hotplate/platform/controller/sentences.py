"""What an operator is told of a replica or a roll-out, and what to do; pure."""

from __future__ import annotations

from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.platform.store.records import Deployment

_WHAT_NEXT = {
    ReplicaState.BACKOFF: "it is started again after a pause",
    ReplicaState.FAILED: "trying again would not help: mend that and deploy again",
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
        + ("requests that it had were cut; " if cut else "")
        + f"'hotplate logs {replica.key.deployment}' shows what it printed"
    )


def ready_again(replica: Replica) -> str:
    """One that was unready is not any more."""
    return f"replica {replica.id}: its readiness checks succeed again, and it gets requests"


def finishing(tasks: int, patience_s: float) -> str:
    """What a draining replica is waited for."""
    counted = "a task" if tasks == 1 else f"{tasks} tasks"
    return (
        f"it finishes {counted} first, {patience_s / 3600:.3g} h at most, and gets nothing new; "
        "who terminates the deployment does not wait for that"
    )


def failed(deployment: Deployment, reason: str) -> str:
    """The latest revision cannot start."""
    said = (
        f"revision {deployment.latest.number}: {reason}; mend that and deploy again; "
        f"'hotplate logs {deployment.name}' shows what it printed"
    )
    if deployment.serving is None:
        return said
    return f"{said}; revision {deployment.serving.number} goes on serving"
