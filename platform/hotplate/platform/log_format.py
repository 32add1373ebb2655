"""How the platform's processes log, and which of their lines `hotplate up` shows to people.

Every process logs to standard error, which `hotplate up` keeps in a file per role. What happens to
deployments and to the platform is logged by `events`, in sentences; the other loggers name a module
and speak to those who look for a fault.
"""

from __future__ import annotations

import logging
import re

events = logging.getLogger("hotplate.events")
"""A deployment's sentence begins with its name: "chat: replica chat-1-a is ready after 3.2 s"."""

_SHOWN_LEVELS = ("ERROR", "CRITICAL")
_LINE = re.compile(
    r"(?P<time>\d\d:\d\d:\d\d) (?P<level>[A-Z]+) +(?P<logger>[\w.-]+): (?P<message>.*)"
)


def log_to_stderr() -> None:
    """One line per message, with the time of day, the level and the logger."""
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
    )
    # Every request of a client and every step of a migration is too much for a person to read.
    for chatty in ("aiohttp.access", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def for_people(line: str) -> str:
    """What the terminal of `hotplate up` shows of a line that a role has logged; empty = nothing.

    It shows events and errors; a traceback stays in the log.
    """
    found = _LINE.fullmatch(line)
    if found and (found["logger"] == events.name or found["level"] in _SHOWN_LEVELS):
        return f"{found['time']}  {found['message']}"
    return ""
