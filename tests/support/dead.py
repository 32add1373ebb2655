"""The end that a test gives to a life in its own process; what is left of it stays unlogged."""

from __future__ import annotations

import asyncio
from typing import Any


class Dead(BaseException):
    """A process that is dead does nothing more; no handler may catch this."""


def bury_the_dead(loop: asyncio.AbstractEventLoop) -> None:
    """Log no task that has ended with `Dead`.

    The garbage collector finds them at any moment. Python 3.11 parses the lines of a traceback that
    it formats, and fails where that happens within another parse.
    """
    loop.set_exception_handler(_but_the_dead)


def _but_the_dead(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), Dead):
        loop.default_exception_handler(context)
