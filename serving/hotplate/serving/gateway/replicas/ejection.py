"""Whether a replica gets requests, by what its connections have done. Pure.

A replica is out once it refuses a connection, or ends one with a request on it, and until it is
tried with success: after `FIRST_TRY_S`, then each time after twice as long. A request that takes
its time, or runs out of it, says nothing of a replica, nor does the end of a kept connection
between two requests.
"""

from __future__ import annotations

FIRST_TRY_S = 0.1
"""A process that has been killed has left its port by then."""
LONGEST_PAUSE_S = 5.0


class Ejection:
    """What is known of one replica."""

    __slots__ = ("_pause_s", "reason")

    def __init__(self) -> None:
        self.reason = ""
        """Why it is out; empty = it is in."""
        self._pause_s = 0.0

    def fail(self, reason: str) -> bool:
        """It refused or died. False: it was out already, as others have told."""
        if self.reason:
            return False
        self.reason = reason
        self._pause_s = FIRST_TRY_S
        return True

    def next_try_s(self) -> float:
        """How long to wait before it is tried again; longer each time."""
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return pause_s

    def tried(self, trouble: str) -> bool:
        """How a try went: without trouble it is in again. True: that is news."""
        news = trouble != self.reason
        self.reason = trouble
        return news
