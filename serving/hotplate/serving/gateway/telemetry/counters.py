"""A gateway's counters of one route: plain numbers, which `metrics.py` shows."""

from __future__ import annotations

from hotplate.serving.gateway.telemetry.histogram import Histogram, bucket_of

STATUS_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")


class RouteCounters:
    """One route's numbers since the gateway started."""

    def __init__(self) -> None:
        self.answers = [0] * (len(STATUS_CLASSES) + 1)
        self.left = 0
        """Callers that left before a response began."""
        self.repeats = 0
        """Requests that were sent to a replica again."""
        self.refusals: dict[str, int] = {}
        """By error code."""
        self.pushed_out = 0
        """Requests that had waited and were pushed out for another organization's."""
        self.waits = Histogram()
        self.first_bytes = Histogram()
        self.totals = Histogram()

    def answered(self, status: int) -> None:
        self.answers[min(status // 100, 5)] += 1

    def answered_at_once(self, status: int, seconds: float) -> None:
        """A response began and ended after this time."""
        self.answers[min(status // 100, 5)] += 1
        bucket = bucket_of(seconds)
        self.first_bytes.count(bucket, seconds)
        self.totals.count(bucket, seconds)

    def caller_left(self) -> None:
        self.left += 1

    def refused(self, code: str) -> None:
        self.refusals[code] = self.refusals.get(code, 0) + 1

    def waited(self, wait_s: float) -> None:
        self.waits.add(wait_s)
