"""How long requests take, learnt from those that have ended. Pure.

Two questions, two answers:

* How long until the work ahead is done? The mean of the time that requests had their slots, less
  one deviation for each square root of their number: what a lucky caller may hope for.
* Can a request still be answered in the time it has left? Not if nine of ten took longer until
  their answers began: the tenth percentile of the newest 64. Streams count until their
  first byte only, as time-outs do. A mean would refuse what can finish wherever short and long
  requests are mixed. Where others wait for the slot it must have a fair chance of one kind's
  spread too: a tenth above that percentile, or the median, whichever is less. Under overload every
  request gets its slot as its time runs out, and would else be late by a hair, one after another.
  A newest one that took less than half says that things have changed: it counts instead.

The first requests of a model that loads lazily are slow, and what they teach must not keep others
out: what is known of less than ten requests counts in part, of one not at all; and a first byte's
time is believed for `FRESH_S`, so that one request a while finds out whether it still holds.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from typing import Final

MEAN_WEIGHT: Final = 0.1
"""Weight of the newest request in the means, once there are ten."""
ENOUGH: Final = 10
"""Requests after which both are held against a request as they are; the first says nothing."""
WINDOW: Final = 64
"""Requests whose first byte's times are kept."""
PAUSE_S: Final = 0.005
"""Once there are as many, only what ends so long after the last is learnt from: two hundred a
second tell as much as ten thousand."""
LOW: Final = 0.1
"""The quantile of them below which a request is not tried."""
SPREAD: Final = 1.1
FALL: Final = 0.5
FRESH_S: Final = 5.0


class ServiceTime:
    """What is known of one route's requests."""

    def __init__(self) -> None:
        self.mean_s = 0.0
        """Exponentially weighted mean of the time that a request had its slot; 0 = none yet."""
        self.seen = 0
        self._variance = 0.0
        self._trust = 0.0
        self._answer_s: deque[float] = deque()
        self._sorted: list[float] = []
        self._newest_at = -math.inf
        self.least_s = 0.0
        """What an answer takes at least, where nobody else wants the slot."""
        self.fair_s = 0.0
        """The same where somebody does."""

    def learn(self, slot_s: float, answer_s: float, now: float) -> None:
        """A request had its slot for `slot_s`, its answer began `answer_s` after it got it."""
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
        newest, known = self._answer_s, self._sorted
        insort(known, answer_s)
        newest.append(answer_s)
        if len(newest) > WINDOW:
            del known[bisect_left(known, newest.popleft())]
        low_s = known[int(LOW * len(known))]
        if answer_s < low_s * FALL:
            low_s = answer_s
        self.least_s = low_s * self._trust
        self.fair_s = min(low_s * SPREAD, known[len(known) // 2]) * self._trust

    def work_s(self, requests: float) -> float:
        """Slot time of so many requests, on average."""
        return requests * self.mean_s

    def least_work_s(self, requests: float) -> float:
        """Slot time that so many requests take at least, with luck."""
        least_s = requests * self.mean_s - math.sqrt(requests * self._variance)
        return max(0.0, least_s * self._trust)

    def is_fresh(self, now: float) -> bool:
        """Whether `least_s` and `fair_s` may be held against a request."""
        return now - self._newest_at <= FRESH_S
