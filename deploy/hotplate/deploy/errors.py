"""DeployError
├── UnknownReplica    no replica of that id, now or lately
├── BeingPrepared     something is being made; ask again when it has changed
├── PrepareFailed     environment, bento or models could not be made ready
├── SpawnFailed       the operating system would not start a process
├── StandbyRefused    a warm process did not become a replica; start one anew
├── ClusterRefused    a cluster's API server has refused a request
├── ClusterUnreachable  a cluster's API server does not answer
└── BadQuantity       a CPU, memory or GPU amount that cannot be read
"""

from __future__ import annotations


class DeployError(Exception):
    """Base of what an engine raises; `code` is stable."""

    code = "deploy_error"


class UnknownReplica(DeployError):
    """No replica of that id, now or lately. List the replicas and ask again."""

    code = "unknown_replica"


class BeingPrepared(DeployError):
    """What was asked for is being made: it is asked for again when something has changed. `log` is
    the path of the file with the output of what makes it; empty while there is none."""

    code = "being_prepared"

    def __init__(self, message: str, *, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class PrepareFailed(DeployError):
    """A replica's environment, bento or models could not be made ready.

    `retry` is False when trying again cannot help (an unknown package, a Python that is not here),
    `no_room` True when it only has to wait for room on a disk; `log` holds the last lines of the
    output of what failed, if something was run. Runtimes raise kinds of their own.
    """

    code = "prepare_failed"
    unbuilt = False
    """Whether it was the environment that could not be built."""

    def __init__(
        self,
        message: str,
        *,
        retry: bool = False,
        no_room: bool = False,
        log: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.retry = retry
        self.no_room = no_room
        self.log = log


class SpawnFailed(DeployError):
    """The operating system would not start a process; the message names program and reason."""

    code = "spawn_failed"


class StandbyRefused(DeployError):
    """A warm process did not become a replica: start one anew; the message says why."""

    code = "standby_refused"


class StandbyEnded(StandbyRefused):
    """It ended before it had answered; its log says why."""


class TemplateUnforkable(DeployError):
    """A process has imported what does not survive a fork; the message says what, and of which
    module."""

    code = "template_unforkable"


class WarmProcessUnusable(DeployError):
    """A process is not as replicas of its environment are when they have imported the same; the
    message says how it differs."""

    code = "warm_process_unusable"


class ClusterRefused(DeployError):
    """A cluster's API server has refused a request; the message is its own sentence, `status` that
    of the answer: 403 not allowed or beyond a quota, 409 changed meanwhile, 410 too old, 422 not
    valid."""

    code = "cluster_refused"

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class ClusterUnreachable(DeployError):
    """A cluster's API server does not answer, or breaks off; the message says how."""

    code = "cluster_unreachable"


class BadQuantity(DeployError):
    """An amount of CPU, memory or GPU that cannot be read; the message names it."""

    code = "bad_quantity"
