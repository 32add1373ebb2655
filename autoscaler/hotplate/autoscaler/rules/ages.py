"""What requests that still run say of how long requests last.

The mean of the requests that have ended knows nothing of those that have not, which are the longer
ones. Of these it is known that they last at least as long as they have (right-censored data). While
the one that runs longest has run, requests took so much slot time and so many of them ended; the
first divided by the second is the likeliest mean of exponential lifetimes, also where not all have
ended (Epstein and Sobel, "Life Testing", 1953). One end is counted where there was none.

Lifetimes are not exponential, so this is believed within limits:

* One request may be an exception: where others run beside it, its own slot time does not count. A
  connection that stays open for a week says nothing about the requests in the other slots.
* Requests that begin together and last equally long end together, and before that the quotient
  exceeds the time that any of them has run. So no more is believed than that time.
* One of many always runs longer than the mean, so it has to be twice that mean.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import islice
from typing import NamedTuple

from hotplate.autoscaler.policy import Demand

MOMENTS = 64
"""So many past moments are stored at most, the older the farther apart."""
OLDER = 2.0
"""The factor over the mean of ended requests from which on those that run are believed. With 1 some
public traces have starts that help nobody; with 4 waits after a change are up to two thirds
longer."""


class _Moment(NamedTuple):
    at: float
    slot_s: float
    """Slot time until then."""
    completed: int


class Ages:
    """The evidence of one service's requests that run. `now` never goes back."""

    def __init__(self) -> None:
        self._moments: deque[_Moment] = deque()
        """When something began or ended. The first is not after the request that runs longest
        began, or it is the first one known."""
        self._in_flight = self._completed = 0
        self._oldest_at: float | None = None
        self._slot_s = self._at = 0.0

    def observe(self, demand: Demand, now: float) -> None:
        """This is what the gateway counts from `now` on."""
        oldest_at, in_flight, completed = demand.oldest_at, demand.in_flight, demand.completed
        if oldest_at is None or not in_flight or completed < self._completed:
            self.forget()
        self._slot_s += self._in_flight * (now - self._at)
        self._at = now
        if oldest_at is None or not in_flight:
            return
        self._oldest_at = oldest_at
        moments = self._moments
        if (in_flight, completed) != (self._in_flight, self._completed) or not moments:
            self._in_flight, self._completed = in_flight, completed
            moments.append(_Moment(now, self._slot_s, completed))
        while len(moments) > 1 and moments[1].at <= oldest_at:
            moments.popleft()
        if len(moments) > MOMENTS:
            self._thin_out()

    def forget(self) -> None:
        """What was seen so far does not count: nothing runs, or the gateway was not heard, or it
        has begun anew."""
        self._moments.clear()
        self._in_flight = self._completed = 0
        self._oldest_at = None

    def lasts_s(self, ended_s: float, now: float) -> float:
        """How long a request lasts, seconds, where those that have ended lasted `ended_s` on
        average: that, or more if those that run say so."""
        oldest_at = self._oldest_at
        if oldest_at is None:
            return ended_s
        slot_s = self._slot_time_s(oldest_at) + self._counted * (now - self._at)
        running_s = min(now - oldest_at, slot_s / self._ends)
        return running_s if running_s >= OLDER * ended_s else ended_s

    def older_at(self, ended_s: float) -> float:
        """From when on `lasts_s` is more than `ended_s`, unless something ends or begins; inf =
        never."""
        oldest_at = self._oldest_at
        if oldest_at is None:
            return math.inf
        older_s = OLDER * ended_s
        lacking_s = older_s * self._ends - self._slot_time_s(oldest_at)
        return max(oldest_at + older_s, self._at + lacking_s / self._counted)

    @property
    def _counted(self) -> int:
        """The requests in flight whose slot time counts."""
        return max(1, self._in_flight - 1)

    @property
    def _ends(self) -> int:
        """Requests that ended since the first moment; at least 1."""
        return max(1, self._completed - self._moments[0].completed)

    def _slot_time_s(self, oldest_at: float) -> float:
        """The slot time that counts, from the first moment to the last observation."""
        first = self._moments[0]
        slot_s = self._slot_s - first.slot_s
        return slot_s - (self._at - max(oldest_at, first.at)) if self._in_flight > 1 else slot_s

    def _thin_out(self) -> None:
        """Drops every other moment of the older half, but not the first."""
        older, newer = (
            islice(self._moments, 0, MOMENTS // 2, 2),
            islice(self._moments, MOMENTS // 2, None),
        )
        self._moments = deque([*older, *newer])
