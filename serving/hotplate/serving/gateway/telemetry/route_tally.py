"""What of a route's counts was told to the control plane, so that the rest can be told next."""

from __future__ import annotations

from hotplate.serving.gateway.protocol.route_counts import RouteCounts
from hotplate.serving.gateway.telemetry.counters import RouteCounters
from hotplate.serving.gateway.telemetry.histogram import Histogram
from hotplate.serving.gateway.telemetry.version_answers import VersionAnswers


class RouteTally:
    """Of one route. Most routes have nothing new most times, which costs next to nothing."""

    def __init__(self, counters: RouteCounters, answers: VersionAnswers) -> None:
        self._counters = counters
        self._answers = answers
        self._seen = (0.0, 0.0, 0.0, 0, 0)
        self._versions: dict[str, tuple[int, int]] = {}
        self._refusals: dict[str, int] = {}
        self._waits = Histogram().counts()
        self._first_bytes = Histogram().counts()
        self._totals = Histogram().counts()

    def take(self, completed: int) -> RouteCounts | None:
        """What came since the last call; None = nothing. `completed` is how many requests have
        given their slot back."""
        counters = self._counters
        seen = (
            counters.waits.sum_s,
            counters.first_bytes.sum_s,
            counters.totals.sum_s,
            sum(counters.refusals.values()),
            completed,
        )
        if seen == self._seen:
            return None
        self._seen = seen
        answered, failed = self._answered()
        refusals = {
            code: count - self._refusals.get(code, 0)
            for code, count in counters.refusals.items()
            if count != self._refusals.get(code, 0)
        }
        self._refusals = dict(counters.refusals)
        counts = RouteCounts(
            answered=answered,
            failed=failed,
            refusals=refusals,
            waits=counters.waits.since(self._waits),
            first_bytes=counters.first_bytes.since(self._first_bytes),
            answers=counters.totals.since(self._totals),
        )
        self._waits = counters.waits.counts()
        self._first_bytes = counters.first_bytes.counts()
        self._totals = counters.totals.counts()
        return counts

    def _answered(self) -> tuple[int, int]:
        """Of all versions; those that are forgotten have nothing new."""
        answered = failed = 0
        totals = self._answers.totals()
        for version, (all_of, bad) in totals.items():
            told_all, told_bad = self._versions.get(version, (0, 0))
            answered += all_of - told_all
            failed += bad - told_bad
        self._versions = totals
        return answered, failed
