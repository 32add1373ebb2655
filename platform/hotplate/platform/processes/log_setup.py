"""How the platform's processes log: lines on standard error, which `up` keeps in files."""

from __future__ import annotations

import logging


def log_to_stderr() -> None:
    """One line per message, with the time of day and the part that speaks."""
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
    )
    # Every request of a client and every step of a migration is too much for a person to read.
    for chatty in ("aiohttp.access", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
