"""`--follow`: shows what has come since the last look, until the person stops it."""

from __future__ import annotations

import threading
from collections.abc import Callable

FOLLOW_S = 1.0
"""Between two looks."""

Shown = dict[str, list[str]]
"""The lines last shown, per replica, or of all events under ""."""


def look_again(look: Callable[[Shown], Shown], *, follow: bool) -> None:
    """Look once, or every second; `look` gets what it showed the time before."""
    shown = look({})
    while follow:
        threading.Event().wait(FOLLOW_S)
        shown = look(shown)
