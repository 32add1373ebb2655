"""PlatformError
├── Unauthorized    no token, or one that is unknown or expired
├── TooManyTries    one more wrong token, code or link after many from the same address
├── Forbidden       a good token without the scope or the role that the call needs
├── NotFound        nothing of that name in the caller's organization
├── Conflict        the name is taken, or the thing is in a state that does not allow it
├── ChangedMeanwhile  what is to be changed is not what the caller has read; nothing was changed
├── QuotaExceeded   what a deployment always needs is more than its organization may have
├── Alone           replicas are not kept apart here, and another organization is served
├── Invalid         a request that cannot be carried out as written; the message has the path
├── BodyCut         the body of an upload ended before all of it had arrived
├── BodyLarge       a body of more bytes than a call takes
├── BodySlow        a body that takes longer to arrive than a call may last
├── LinkExpired     a signed transfer URL that is forged, or older than it may be
├── PortsExhausted  every port that deployments may have is taken
├── StoreFailed     the database does not take reads or writes now; nothing was changed
│   └── NoLongerLeader  another control plane acts in place of this one; nothing was changed
├── NoLeader        no control plane acts at this moment, or it cannot be reached; ask again
├── SecretsUnreadable  a secret cannot be decrypted: a key is missing, or its row was changed
├── Busy            it cannot be now, and may be soon: files are being pushed, say; nothing was done
├── NotCallable     the deployment's gateway cannot be reached now; ask again
├── StillUnpacking  what is asked for has been uploaded but is not ready yet; ask again
├── BadSetting      a flag, variable or key of the settings file that cannot be used
├── AlreadyRunning  another `hotplate up` has the data directory
├── CannotStart     a part of the platform does not come up; the message says which and why
├── BackupFailed    a backup that cannot be made, or a file that cannot be restored
└── Unreachable     a command finds no platform to talk to
"""

from __future__ import annotations


class PlatformError(Exception):
    """Base of what the control plane raises; `code` is stable, the message is one sentence."""

    code = "platform_error"
    retry_after_s: int | None = None


class Unauthorized(PlatformError):
    """No token, or one that is unknown or expired. Log in again."""

    code = "unauthorized"


class TooManyTries(PlatformError):
    """Many wrong tokens, codes or links came from an address lately. Wait, then try again."""

    code = "too_many_tries"

    def __init__(self, address: str, wait_s: int) -> None:
        super().__init__(
            f"too many wrong tokens, codes or links came from {address or 'there'} in the last "
            f"minute; try again in {wait_s} s"
        )
        self.retry_after_s = wait_s


class Forbidden(PlatformError):
    """The caller is known but lacks a scope or a role. Use a token that has it."""

    code = "forbidden"


class NotFound(PlatformError):
    """Nothing of that name in the caller's organization."""

    code = "not_found"


class Conflict(PlatformError):
    """The name is taken, or the thing is in a state that does not allow what was asked."""

    code = "conflict"


class ChangedMeanwhile(PlatformError):
    """What is to be changed is not what the caller has read (`If-Match`). Read it again."""

    code = "changed_meanwhile"


class QuotaExceeded(PlatformError):
    """What a deployment always needs is more than its organization's quota has left.

    Ask for less, or for a larger quota.
    """

    code = "quota_exceeded"


class Alone(PlatformError):
    """Nothing keeps replicas apart on this machine, and another organization is served on it.

    Let the kernel put up the walls, or say that organizations trust each other.
    """

    code = "alone"


class Invalid(PlatformError):
    """A request that cannot be carried out as written; the message opens with the field's path."""

    code = "invalid"


class BodyCut(PlatformError):
    """The body of an upload ended, or stood still, before all of it had arrived. Send it again."""

    code = "body_cut"


class BodyLarge(PlatformError):
    """A body of more bytes than a call takes. Send less in one."""

    code = "request_entity_too_large"


class BodySlow(PlatformError):
    """A body that takes longer to arrive than a call may last. Send it again, faster."""

    code = "body_slow"


class LinkExpired(PlatformError):
    """A signed transfer URL that is forged, or older than it may be. Ask for a new one."""

    code = "link_expired"


class PortsExhausted(PlatformError):
    """Every port that deployments may have is taken. Delete a deployment or widen the range."""

    code = "ports_exhausted"


class StoreFailed(PlatformError):
    """The database does not answer: its disk is full, it is locked, it cannot be reached.

    Nothing was changed; the same request may be sent again.
    """

    code = "store_failed"
    retry_after_s = 10


class NoLongerLeader(StoreFailed):
    """Another control plane has begun to act while this one was stopped or cut off.

    Nothing was changed; the same request may be sent again.
    """

    code = "no_longer_leader"
    retry_after_s = 1


class NoLeader(PlatformError):
    """Of several control planes none acts now, or the one that does cannot be reached. Ask again
    in a few seconds."""

    code = "no_leader"
    retry_after_s = 2


class SecretsUnreadable(PlatformError):
    """A secret cannot be decrypted, or its keys cannot be read or written. Nothing was changed."""

    code = "secrets_unreadable"


class Busy(PlatformError):
    """It cannot be now; nothing was done. Try it again soon."""

    code = "busy"
    retry_after_s = 10


class NotCallable(PlatformError):
    """No gateway takes calls of the deployment at this moment. Ask again in a few seconds."""

    code = "not_callable"
    retry_after_s = 2


class StillUnpacking(PlatformError):
    """What is asked for was uploaded but is still being unpacked. Ask again a little later."""

    code = "still_unpacking"
    retry_after_s = 10


class BadSetting(PlatformError):
    """A flag, variable or key of the settings file that is unknown or has a bad value."""

    code = "bad_setting"


class AlreadyRunning(PlatformError):
    """Another `hotplate up` has the data directory. Stop it or choose another directory."""

    code = "already_running"


class CannotStart(PlatformError):
    """A part of the platform does not come up; the message says which, why and what to do."""

    code = "cannot_start"


class BackupFailed(PlatformError):
    """A backup that cannot be made, or a file that cannot be restored. Nothing was changed."""

    code = "backup_failed"


class Unreachable(PlatformError):
    """A command finds no platform to talk to. Start it, or say where it is."""

    code = "unreachable"
