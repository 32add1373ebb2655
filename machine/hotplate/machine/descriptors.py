"""How many files and connections this process may have open."""

from __future__ import annotations

import contextlib
import errno
import resource

_SHORT = frozenset({errno.EMFILE, errno.ENFILE})


def allow_many() -> int:
    """Raises the soft limit of open descriptors to the hard one; what it is then.

    Systems start programs with 1024, for the sake of `select`; nothing here calls that.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft


def are_short(error: BaseException) -> bool:
    """Whether an operation, or what it was for, failed because no descriptor was left."""
    errors = (error, error.__cause__)
    return any(isinstance(one, OSError) and one.errno in _SHORT for one in errors)


def short() -> str:
    """What a person is told of an error of which `are_short` holds."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"no descriptor is left of the {most} that this process may have open (ulimit -n), or of "
        "the machine's (fs.file-max); raise the limit, or end what holds them"
    )
