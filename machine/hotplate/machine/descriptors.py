"""How many files and connections this process may have open."""

from __future__ import annotations

import contextlib
import resource


def allow_many() -> int:
    """Raises the soft limit of open descriptors to the hard one; what it is then.

    Systems start programs with 1024, for the sake of `select`; nothing here calls that.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft
