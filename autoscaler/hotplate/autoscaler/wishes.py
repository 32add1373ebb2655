"""What demand asks for now, before windows, step limits and bounds."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from statistics import median

from hotplate.autoscaler.claim import Claim, count, counts, seconds
from hotplate.autoscaler.policy import Cause, Demand, Policy, Replicas
from hotplate.autoscaler.useful_start import HORIZON, Pace, late_requests, useful_starts
from hotplate.autoscaler.windows import WindowMean

TICK_S = 2.0
"""Decide this often while figures move by themselves (a queue waits, a mean follows); Knative's."""
MEAN_S = 6.0
"""Span of the mean demand: Knative's panic window, short enough to see a burst."""
UTILIZATION = 0.8
"""Share of a replica's slots to plan with, where it has at least `UTILIZATION_FROM` of them."""
UTILIZATION_FROM = 4
"""Below this concurrency a share would be a fraction of one slot, and would double the fleet."""
COLD_START_S = 10.0
"""Taken for a cold start until the first one has been seen."""
SHORTEST_START_S = 0.01
"""A start that took no time at all is taken for this, since times are divided by it."""
COLD_STARTS = 20
"""The median is over this many: enough against one slow pull, few enough to follow a change."""


class Wishes:
    """Turns demand into a claim, and learns how fast replicas work and start.

    `cold_starts_s`: what is known of cold starts already, oldest first, seconds.
    """

    def __init__(self, policy: Policy, cold_starts_s: Iterable[float] = ()) -> None:
        self._policy = policy
        self._mean = WindowMean(MEAN_S)
        self._service_s = 0.0
        self._above_since = math.inf
        self.cold_starts_s = deque(cold_starts_s, COLD_STARTS)
        self.cold_start_s = median(self.cold_starts_s) if self.cold_starts_s else COLD_START_S

    def observe(self, demand: Demand, now: float) -> None:
        self._service_s = demand.service_s or self._service_s
        self._mean.record(demand.total, now)

    def ready_after(self, cold_start_s: float) -> None:
        """A replica became ready this long after its start began."""
        self.cold_starts_s.append(max(cold_start_s, SHORTEST_START_S))
        self.cold_start_s = median(self.cold_starts_s)

    @property
    def pace(self) -> Pace:
        """A request is taken to last a cold start until the gateway knows how long they last."""
        service_s = self._service_s or self.cold_start_s
        return Pace(self._policy.concurrency, service_s, self.cold_start_s)

    def level(self, demand: Demand) -> int:
        """How many replicas have work if each is full, at most `max_replicas`."""
        return min(math.ceil(demand.total / self._policy.concurrency), self._policy.max_replicas)

    def claim(self, demand: Demand, replicas: Replicas, now: float) -> Claim:
        """The largest of what is wished; for some demand there is a claim of 1 at least."""
        if demand.total == 0:
            self._above_since = math.inf
            return Claim(0, Cause.IDLE, "no demand")
        if self._policy.says_how_to_go_up:
            return self._documented(demand, replicas.live)
        fits = Claim(min(self.level(demand), replicas.live), Cause.FITS, f"{counts(demand)} fit")
        late = self._late(demand, replicas, now)
        average = self._average(demand, replicas, now)
        return max((fits, late, average), key=lambda wish: wish.replicas)

    def next_at(self, demand: Demand, live: int, now: float) -> float:
        """When the claim may differ though nothing changed; inf = never."""
        if demand.total == 0 or self._policy.says_how_to_go_up:
            return math.inf
        if not demand.queued and demand.total <= live * self._capacity:
            return math.inf
        sustained_at = self._above_since + self.pace.horizon_s
        return min(now + TICK_S, sustained_at if sustained_at > now else math.inf)

    def _documented(self, demand: Demand, live: int) -> Claim:
        """BentoCloud's formula: ceil(demand / concurrency)."""
        level = self.level(demand)
        why = f"{counts(demand)} at concurrency {self._policy.concurrency}"
        if live == 0:
            return Claim(level, Cause.WAKE, f"{why} and no replica")
        return Claim(level, Cause.DEMAND if level > live else Cause.FITS, why)

    def _late(self, demand: Demand, replicas: Replicas, now: float) -> Claim:
        """What lives, and the starts that are useful to held requests."""
        pace, live = self.pace, replicas.live
        late = late_requests(demand, replicas, pace, now)
        wanted = live + useful_starts(late, pace) if late else 0
        if live == 0:
            return Claim(max(1, wanted), Cause.WAKE, f"{counts(demand)} and no replica")
        why = (
            f"{count(demand.queued, 'request')} held, {late} would wait longer than "
            f"{HORIZON} x the {seconds(pace.cold_start_s)} a new replica needs"
        )
        return Claim(wanted, Cause.HELD, why)

    def _average(self, demand: Demand, replicas: Replicas, now: float) -> Claim:
        """Demand over what a replica should carry, once its mean exceeds what is ready for long.

        Long is one horizon in which nothing is starting: a backlog that a start is already on the
        way for is not counted twice, and a burst is left to useful-start. It catches what that
        cannot see: a queue behind a request longer than most, and replicas that are merely full.
        """
        mean, capacity, live = self._mean.mean(now), self._capacity, replicas.live
        wanted = _ceil(min(mean, demand.total) / capacity)
        if replicas.starting_at or _ceil(mean / capacity) <= live:
            self._above_since = math.inf
        else:
            self._above_since = min(self._above_since, now)
        if now < self._above_since + self.pace.horizon_s:
            return Claim(min(wanted, live), Cause.FITS, f"{counts(demand)} fit")
        why = (
            f"demand averages {mean:.1f} over {MEAN_S:.0f} s, and was more than the "
            f"{live * capacity:g} that {count(live, 'replica')} should carry "
            f"for {seconds(now - self._above_since)}"
        )
        return Claim(wanted, Cause.DEMAND, why)

    @property
    def _capacity(self) -> float:
        """Requests that one replica should carry at once."""
        slots = self._policy.concurrency
        return slots * UTILIZATION if slots >= UTILIZATION_FROM else slots


def _ceil(value: float) -> int:
    """The ceiling, forgiving the last digits of a sum of floats."""
    return math.ceil(value - 1e-9)
