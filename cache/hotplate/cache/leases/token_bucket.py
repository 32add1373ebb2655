"""A token bucket: a burst, and after it a steady rate. Pure."""

from __future__ import annotations


class TokenBucket:
    """`now` is in seconds of any monotonic clock."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst_s = burst / per_s
        self._paid_until = float("-inf")

    def wait_s(self, amount: float, now: float) -> float:
        """Takes `amount` tokens; how long to wait before using them."""
        begins = max(self._paid_until, now - self._burst_s)
        self._paid_until = begins + amount / self._per_s
        return max(0.0, self._paid_until - now)
