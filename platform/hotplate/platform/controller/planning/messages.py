"""Sentences for operators about a replica or a roll-out, with what to do; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.platform.notices import TRIED
from hotplate.platform.spec.bento_manifest import NamedDeployment
from hotplate.platform.store.records import Deployment, DesiredState

_OUTPUT = re.compile(r"; its log ends with: .*", re.DOTALL)
_STEP = re.compile(r"The step .+ of building the environment .*", re.DOTALL)
"""It quotes the author's command, which may have a password in it, and what that printed."""
_FOLDERS = re.compile(r"(?:\bfile:/+|(?<![\w:/.])/)(?:[^\s/'\",;()]+/)+")
"""The folders in a path. `/readyz` is a path of the service, and so is what URLs have."""

_WHAT_NEXT = {
    ReplicaState.BACKOFF: "it is started again after a pause",
    ReplicaState.FAILED: "another try would fail too: fix that and deploy again",
    ReplicaState.UNREADY: "it gets no request until a check succeeds",
}


def failure_of(replica: Replica) -> str:
    """Why a replica does not serve, and what happens next."""
    next_step = _WHAT_NEXT.get(replica.state)
    return f"{_clause(replica.reason)}; {next_step}" if next_step else replica.reason


def replica_problem(replica: Replica) -> str:
    """The sentence for a replica that has ended by itself or fails its checks."""
    cut = replica.state is ReplicaState.BACKOFF and replica.ready_at is not None
    return (
        f"replica {replica.id}: {failure_of(replica)}; "
        + ("its requests were interrupted; " if cut else "")
        + f"'hotplate logs {replica.key.deployment}' shows what it printed"
    )


def became_ready(replica: Replica) -> str:
    """The sentence for a replica that has started."""
    return f"replica {replica.id} is ready, {replica.cold_start_s:.1f} s after it was requested"


def scaled(service: str, before: int, desired: int, reason: str) -> str:
    """The sentence for a changed number of desired replicas."""
    return f"service '{service}' is scaled from {before} to {desired} replicas: {reason}"


def ready_again(replica: Replica) -> str:
    """The sentence for a replica that was unready and is ready again."""
    return f"replica {replica.id}: its readiness checks succeed again, and it gets requests"


def finishing(tasks: int, patience_s: float) -> str:
    """Why a draining replica has not ended yet."""
    counted = "a task" if tasks == 1 else f"{tasks} tasks"
    return (
        f"it finishes {counted} first, within {patience_s / 3600:.3g} h, and gets no new work; "
        "the label hotplate/task-drain-s says how long a replaced replica may take, and "
        "terminating the deployment does not wait for tasks"
    )


def ejected(replica: str, reason: str) -> str:
    """The sentence for a replica that reports itself ready and gets no requests."""
    return f"replica {replica} gets no requests: {reason}; {TRIED}"


def restored(replica: str, out_s: float) -> str:
    """The sentence for an ejected replica that gets requests again."""
    return f"replica {replica} gets requests again, after {out_s:.1f} s"


def for_callers(reason: str) -> str:
    """A reason without what callers must not see: commands and output of a replica or of a build,
    and the host's folders."""
    shown = _STEP.sub("A step of building the environment failed", _OUTPUT.sub("", reason))
    return without_folders(shown)


def without_folders(text: str) -> str:
    """The text with each path of the host's file system reduced to the name of its file."""
    return _FOLDERS.sub("…/", text)


def uncallable(
    named: Sequence[NamedDeployment], wanted: Mapping[str, DesiredState], cluster: str
) -> str:
    """Which of the deployments that a bento names cannot be called; empty = all can. `wanted` has
    those that there are in its organization; `cluster` is the name of this installation."""
    reasons = []
    for each in named:
        if each.cluster not in ("", cluster):
            reasons.append(
                f"{each.name!r} in cluster {each.cluster!r}, and this installation is {cluster!r}"
            )
        elif each.name not in wanted:
            reasons.append(f"{each.name!r}, which does not exist: deploy it")
        elif wanted[each.name] is not DesiredState.RUNNING:
            reasons.append(f"{each.name!r}, which was terminated: deploy or update it")
    more = f" (and {len(reasons) - 1} more that cannot be called)" if len(reasons) > 1 else ""
    return f"it calls the deployment {reasons[0]}{more}" if reasons else ""


def no_ports(why: str) -> str:
    """Why a revision with several services cannot start."""
    return f"it waits for ports by which its services call each other: {why}"


def counted(replicas: int) -> str:
    """A number of replicas in words."""
    return "1 replica" if replicas == 1 else f"{replicas} replicas"


def failed(deployment: Deployment, reason: str) -> str:
    """The sentence for a latest revision that cannot start."""
    sentence = (
        f"revision {deployment.latest.number}: {_clause(reason)}; fix that and deploy again; "
        f"'hotplate logs {deployment.name}' shows what it printed"
    )
    if deployment.serving is None:
        return sentence
    return f"{sentence}; revision {deployment.serving.number} keeps serving"


def _clause(reason: str) -> str:
    """A reason as the beginning of a sentence that goes on."""
    return reason.removesuffix(".")
