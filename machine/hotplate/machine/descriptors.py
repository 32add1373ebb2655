"""How many files and connections this process may have open."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import resource
from typing import Any

SAY_EVERY_S = 60.0
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


def say_when_short(loop: asyncio.AbstractEventLoop, log: logging.Logger) -> None:
    """Has what the loop cannot do for want of descriptors, such as accepting a connection, logged
    as a sentence now and then, in place of a traceback each time."""
    said_at = -math.inf

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal said_at
        error = context.get("exception")
        if error is None or not are_short(error):
            loop.default_exception_handler(context)
        elif loop.time() >= said_at + SAY_EVERY_S:
            said_at = loop.time()
            log.warning("%s", short())

    loop.set_exception_handler(handle)
