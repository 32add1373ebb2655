"""The one lock of all contents on their way here, and what threads wait for under it."""

from __future__ import annotations

import threading


class Monitor:
    """A lock with two conditions, for `Contents` and the fetches that it holds; nobody else's."""

    def __init__(self) -> None:
        lock = threading.RLock()
        self.work = threading.Condition(lock)
        """A fetching thread may find something to do."""
        self.arrived = threading.Condition(lock)
        """A chunk has come, or a fetch has ended."""
