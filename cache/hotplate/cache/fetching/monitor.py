"""The one lock of all contents on their way here, and the two conditions that threads wait for."""

from __future__ import annotations

import threading


class Monitor:
    """A lock with two conditions. Only `Contents` and its fetches use it."""

    def __init__(self) -> None:
        lock = threading.RLock()
        self.work = threading.Condition(lock)
        """A fetching thread may find something to do."""
        self.arrived = threading.Condition(lock)
        """A chunk has come, or a fetch has ended."""
