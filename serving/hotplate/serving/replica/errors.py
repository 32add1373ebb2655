"""ReplicaError
├── EnvironmentFailed   the Python environment of a bento could not be built
├── BentoUnusable       the bento, or what is configured for it, cannot be served as it is
└── FilesUnavailable    the files of a bento or model could not be had from the node's agent
"""

from __future__ import annotations


class ReplicaError(Exception):
    """Base of what making a replica ready raises; `code` is stable.

    `retry` is False when trying again cannot help, `no_room` True when it only has to wait for
    room on a disk; `log` holds the last lines of the output of what failed, if something was run.
    """

    code = "replica_error"

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


class EnvironmentFailed(ReplicaError):
    """The environment could not be built: an unknown package, no such Python, no network …"""

    code = "environment_failed"


class BentoUnusable(ReplicaError):
    """The bento cannot be served as it is: legacy format, a required variable without a value …"""

    code = "bento_unusable"


class FilesUnavailable(ReplicaError):
    """Files could not be had from the node's agent; `retry` says whether they may come yet."""

    code = "files_unavailable"
