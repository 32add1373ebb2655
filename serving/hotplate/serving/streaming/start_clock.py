"""The time of a cold start, as its replica's own processes tell it; Python >= 3.9.

In a pod the launcher notes when it began, and all that follows counts on from there by the clock
that nobody sets: a node's wall clock may be put right by hours while a pod starts. Elsewhere it is
the wall clock, which the engine that started the process goes by too.
"""

from __future__ import annotations

import os
import time
from collections.abc import MutableMapping
from datetime import datetime, timezone
from typing import Optional

LAUNCHED = "HOTPLATE_LAUNCHED"
"""When the launcher began: Unix seconds, and the same moment by the kernel's own clock."""


def note_launch(variables: MutableMapping[str, str]) -> None:
    """Has what is started with these variables count from now on."""
    variables[LAUNCHED] = f"{_wall()!r} {_steady()!r}"


def unix_now() -> float:
    """Unix seconds."""
    noted = _noted()
    return _wall() if noted is None else noted[0] + _steady() - noted[1]


def launched_at() -> Optional[float]:  # noqa: UP045
    """Unix seconds; None where no launcher has begun."""
    noted = _noted()
    return None if noted is None else noted[0]


def _noted() -> Optional[tuple[float, float]]:  # noqa: UP045
    try:
        wall, steady = map(float, os.environ[LAUNCHED].split())
    except (KeyError, ValueError):  # it is the environment of whatever a bento starts
        return None
    return wall, steady


def _wall() -> float:
    return datetime.now(timezone.utc).timestamp()


def _steady() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
