"""How long requests take, learnt from those that have ended. Pure.

Two questions, two answers:

* How long until the requests ahead are done? Their number times the mean slot time, less one
  standard deviation of that sum: what a lucky caller may hope for.
* Can a request still be answered in its remaining time? Not if nine of ten took longer until their
  responses began: the tenth percentile of the newest 64. A stream counts until its first byte
  only, as its time limit does. A mean would refuse requests that can finish wherever short and long
  ones are mixed. Where others wait for the slot the request needs a fair chance also among equals:
  a tenth more than that percentile, or the median, whichever is less. Under overload every request
  gets its slot just as its time runs out, and otherwise one after another would be slightly late.
  If the newest request took less than half of the percentile, things have changed, and its time
  counts instead.

The first requests of a model that loads lazily are slow, and what is learnt from them must not
refuse others: figures from fewer than ten requests count in part, from one not at all. The time to
the first byte is trusted for `FRESH_S`, so that now and then one request checks it.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from typing import Final

MEAN_WEIGHT: Final = 0.1
"""Weight of the newest request in the mean, once there are ten."""
ENOUGH: Final = 10
"""Requests after which the figures count in full; the first counts for nothing."""
WINDOW: Final = 64
"""Requests whose time to the first byte is kept."""
PAUSE_S: Final = 0.005
"""Once `WINDOW` is full, a request that ends sooner than this after the last sample is no sample:
two hundred a second say as much as ten thousand."""
LOW: Final = 0.1
"""The quantile of these times that a request must have left."""
SPREAD: Final = 1.1
FALL: Final = 0.5
FRESH_S: Final = 5.0


class ServiceTime:
    """The service times of one route's requests."""

    def __init__(self) -> None:
        self.mean_s = 0.0
        """Exponentially weighted mean slot time; 0 = no request has ended."""
        self.seen = 0
        self._variance = 0.0
        self._trust = 0.0
        self._first_byte_s: deque[float] = deque()
        self._sorted: list[float] = []
        self._newest_at = -math.inf
        self.least_s = 0.0
        """The remaining time that a request needs where no other waits for the slot."""
        self.fair_s = 0.0
        """The same where others wait."""

    def learn(self, slot_s: float, first_byte_s: float, now: float) -> None:
        """A request had its slot for `slot_s`; its response began after `first_byte_s` of that."""
        if now - self._newest_at < PAUSE_S and self.seen > WINDOW:
            return
        self.seen += 1
        if self.seen <= ENOUGH:
            self._trust = (self.seen - 1) / (ENOUGH - 1)
        weight = max(MEAN_WEIGHT, 1.0 / self.seen)
        off = slot_s - self.mean_s
        self.mean_s += weight * off
        self._variance = (1.0 - weight) * (self._variance + weight * off * off)
        self._newest_at = now
        newest, by_length = self._first_byte_s, self._sorted
        insort(by_length, first_byte_s)
        newest.append(first_byte_s)
        if len(newest) > WINDOW:
            del by_length[bisect_left(by_length, newest.popleft())]
        low_s = by_length[int(LOW * len(by_length))]
        if first_byte_s < low_s * FALL:
            low_s = first_byte_s
        self.least_s = low_s * self._trust
        self.fair_s = min(low_s * SPREAD, by_length[len(by_length) // 2]) * self._trust

    def work_s(self, requests: float) -> float:
        """The mean slot time of that many requests."""
        return requests * self.mean_s

    def least_work_s(self, requests: float) -> float:
        """The slot time that that many requests take with luck."""
        least_s = requests * self.mean_s - math.sqrt(requests * self._variance)
        return max(0.0, least_s * self._trust)

    def is_fresh(self, now: float) -> bool:
        """Whether `least_s` and `fair_s` are new enough to refuse a request."""
        return now - self._newest_at <= FRESH_S
