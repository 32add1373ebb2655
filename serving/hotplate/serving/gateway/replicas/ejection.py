"""Whether a replica gets requests, by what its connections have done. Pure.

A replica is ejected when it refuses a connection, or ends one with a request on it, until a probe
succeeds: the first one after `FIRST_PROBE_S`, and each further one after twice as long. A request
that is slow, or runs out of time, is no reason, nor is the end of a kept connection between two
requests. Envoy calls this outlier detection.
"""

from __future__ import annotations

FIRST_PROBE_S = 0.1
"""A process that has been killed has left its port by then."""
LONGEST_PAUSE_S = 5.0


class Ejection:
    """The ejection of one replica."""

    __slots__ = ("_pause_s", "reason")

    def __init__(self) -> None:
        self.reason = ""
        """Why the replica is ejected; empty = it is not."""
        self._pause_s = 0.0

    def fail(self, reason: str) -> bool:
        """The replica refused or died. Returns whether that ejects it; False: it was ejected
        already."""
        if self.reason:
            return False
        self.reason = reason
        self._pause_s = FIRST_PROBE_S
        return True

    def next_probe_s(self) -> float:
        """Seconds until the next probe; longer each time."""
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return pause_s

    def probed(self, problem: str) -> bool:
        """Takes the result of a probe: without a problem the replica is restored. Returns whether
        the reason has changed."""
        changed = problem != self.reason
        self.reason = problem
        return changed
