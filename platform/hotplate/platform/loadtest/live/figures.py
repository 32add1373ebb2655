"""What is known of a load test while it runs; pure."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hotplate.platform.loadtest.samples import NO_ANSWER, RequestSample

WINDOW_S = 10.0
"""The span of rates and percentiles that are shown."""
ALIKE = 20
"""Failures of one status, from the first request on, after which a load test is pointless."""


@dataclass(frozen=True)
class LoadFigures:
    """How a load test stands."""

    asked_per_s: float | None
    """None of a closed loop: it asks as fast as it is answered."""
    achieved_per_s: float
    answered: int
    refused: int
    failed: int
    p95_s: float | None
    """Of the last requests that were answered."""


class RunningFigures:
    """Is given the samples as their requests end."""

    def __init__(self, due_s: Sequence[float]) -> None:
        """`due_s` is empty for a closed loop."""
        self._due_s = due_s
        self._counts: Counter[str] = Counter()
        self._recent: deque[tuple[float, float, bool]] = deque()
        """Of the requests that ended last: when, their latency, and whether they were answered."""
        self._furthest: RequestSample | None = None
        self._statuses: Counter[int] = Counter()

    def add(self, fresh: Iterable[RequestSample]) -> None:
        for sample in fresh:
            outcome = "answered" if sample.answered else "refused" if sample.refused else "failed"
            self._counts[outcome] += 1
            self._statuses[sample.status] += 1
            self._recent.append((sample.end_s, sample.latency_s, sample.answered))
            if self._furthest is None or sample.number > self._furthest.number:
                self._furthest = sample

    def at(self, now_s: float) -> LoadFigures:
        """As of `now_s`, seconds since second 0."""
        since_s = now_s - WINDOW_S
        while self._recent and self._recent[0][0] < since_s:
            self._recent.popleft()
        latencies = sorted(latency_s for _, latency_s, answered in self._recent if answered)
        span_s = min(WINDOW_S, max(now_s, 1.0))
        asked_per_s = None
        achieved_per_s = len(self._recent) / span_s
        if self._due_s:
            due = bisect_left(self._due_s, now_s) - bisect_left(self._due_s, now_s - span_s)
            asked_per_s = due / span_s
            achieved_per_s = asked_per_s * min(1.0, self.kept_up)
        return LoadFigures(
            asked_per_s,
            achieved_per_s,
            answered=self._counts["answered"],
            refused=self._counts["refused"],
            failed=self._counts["failed"],
            p95_s=latencies[math.ceil(0.95 * len(latencies)) - 1] if latencies else None,
        )

    @property
    def ended(self) -> int:
        """How many requests have ended, in whatever way."""
        return self._counts.total()

    @property
    def kept_up(self) -> float:
        """Of the requests that were due when the furthest one was sent, the share that was sent.

        It does not matter how long requests take, only when they are sent.
        """
        if self._furthest is None or not self._due_s:
            return 1.0
        due = bisect_right(self._due_s, self._furthest.sent_s)
        return (self._furthest.number + 1) / due if due else 1.0

    @property
    def alike(self) -> int | None:
        """The status with which every request so far has failed, if these are enough to say that
        none will do better. A platform that refuses for now may answer later."""
        if len(self._statuses) != 1:
            return None
        (status, count), *_ = self._statuses.items()
        hopeless = status == NO_ANSWER or status >= 300
        refused = self._counts["refused"]
        return status if count >= ALIKE and hopeless and not refused else None
