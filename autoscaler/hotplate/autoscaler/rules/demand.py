"""What demand asks for now, before windows, step limits and bounds."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from statistics import median

from hotplate.autoscaler.policy import Cause, Demand, Policy, Replicas
from hotplate.autoscaler.rules.growth import Growth
from hotplate.autoscaler.rules.proposal import Proposal, count, counts, larger, seconds
from hotplate.autoscaler.rules.useful_start import (
    HORIZON,
    StartPace,
    enough,
    late_requests,
    useful_starts,
)
from hotplate.autoscaler.rules.waiting_cost import worthwhile_starts
from hotplate.autoscaler.rules.windows import WindowMean

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


class DemandRule:
    """Turns demand into a proposal, and learns how fast replicas work and start.

    `cold_starts_s`: what is known of cold starts already, oldest first, seconds; `service_s`: how
    long requests last, as far as is known, 0 = nothing is.
    """

    def __init__(
        self, policy: Policy, cold_starts_s: Iterable[float] = (), service_s: float = 0.0
    ) -> None:
        self._documented = policy.says_how_to_go_up
        self._concurrency = policy.concurrency
        self._most = policy.max_replicas
        self.price_s = policy.price_gpu_s
        """GPU-seconds that one avoided cold start is worth."""
        self._capacity = _capacity(policy.concurrency)
        self._mean = WindowMean(MEAN_S)
        self._growth = Growth()
        self.service_s = service_s
        self._above_since = math.inf
        self._sustained = math.inf
        """The least mean demand since then, once the mean has had the time to follow."""
        self._averaged = 0
        """Replicas that the mean has proposed, for as long as it goes on to say so."""
        self.total = self.level = 0
        """Requests in flight and held; how many replicas have work if each is full, at most
        `max_replicas`."""
        self._pace: StartPace | None = None
        self.cold_starts_s = deque(cold_starts_s, COLD_STARTS)
        self.cold_start_s = median(self.cold_starts_s) if self.cold_starts_s else COLD_START_S

    def observe(self, demand: Demand, now: float) -> None:
        in_flight, queued, service_s = demand
        if service_s and service_s != self.service_s:
            self.service_s, self._pace = service_s, None
        self.total = total = in_flight + queued
        self.level = self.level_of(total)
        self._mean.record(total, now)
        self._growth.record(total, now)

    def level_of(self, total: int) -> int:
        """How many replicas have work where so many requests are there, at most `max_replicas`."""
        return min(-(-total // self._concurrency), self._most)

    def ready_after(self, cold_start_s: float) -> None:
        """A replica became ready this long after its start began."""
        self.cold_starts_s.append(max(cold_start_s, SHORTEST_START_S))
        self.cold_start_s, self._pace = median(self.cold_starts_s), None

    @property
    def concurrency(self) -> int:
        """Slots of one replica."""
        return self._concurrency

    @concurrency.setter
    def concurrency(self, slots: int) -> None:
        if slots != self._concurrency:
            self._concurrency, self._capacity, self._pace = slots, _capacity(slots), None

    @property
    def pace(self) -> StartPace:
        """A request is taken to last a cold start until the gateway knows how long they last."""
        pace = self._pace
        if pace is None:
            service_s = self.service_s or self.cold_start_s
            pace = self._pace = StartPace(self._concurrency, service_s, self.cold_start_s)
        return pace

    def propose(self, demand: Demand, replicas: Replicas, live: int, now: float) -> Proposal:
        """The largest of what each rule proposes; for some demand it is 1 at least.

        `demand` is what was observed last, `live` how many replicas there are.
        """
        total = self.total
        if not total:
            self._above_since, self._averaged = math.inf, 0
            return _NO_DEMAND
        if self._documented:
            return self._by_formula(demand, live)
        fit = self.level if self.level < live else live
        proposal = Proposal(fit, Cause.FITS, lambda: f"{counts(demand)} fit")
        if demand.queued or not live:
            proposal = larger(proposal, self._late(demand, replicas, now))
        rests = self._above_since == math.inf and not self._averaged
        if rests and total <= live * self._capacity:
            return proposal
        return larger(proposal, self._average(demand, replicas, now))

    def next_at(self, demand: Demand, replicas: Replicas, live: int, now: float) -> float:
        """When the proposal may grow though nothing changes; inf = never.

        While a replica starts it does not: the nearer that is, the fewer requests are late. Else
        the mean follows demand, and once it has, it may be above what replicas carry for long.
        """
        total = self.total
        if self._averaged and now < self._mean.settled_at:
            return now + TICK_S
        if not total or (not demand.queued and total <= live * self._capacity):
            return math.inf
        if self._documented or replicas.starting_at or live >= self._most:
            return math.inf
        sustained_at = self._above_since + HORIZON * self.cold_start_s
        tick_at = now + TICK_S if now < self._mean.settled_at else math.inf
        return min(tick_at, sustained_at if sustained_at > now else math.inf)

    def _by_formula(self, demand: Demand, live: int) -> Proposal:
        """BentoCloud's formula: ceil(demand / concurrency)."""
        level, slots = self.level, self._concurrency

        def why() -> str:
            said = f"{counts(demand)} at concurrency {slots}"
            return said if live else f"{said} and no replica"

        if live == 0:
            return Proposal(level, Cause.WAKE, why)
        return Proposal(level, Cause.DEMAND if level > live else Cause.FITS, why)

    def _late(self, demand: Demand, replicas: Replicas, now: float) -> Proposal:
        """What lives, and the starts that are useful to held requests, and to those that come.

        What comes until a replica is ready counts half: on average it waits half of that time.
        """
        pace, live, held = self.pace, replicas.live, demand.queued
        coming = int(self._growth.per_s(now) * pace.cold_start_s / 2) if held else 0
        if coming:
            demand = demand._replace(queued=held + coming)
        late = late_requests(demand, replicas, pace, now)
        useful = useful_starts(late, pace)
        worth = worthwhile_starts(demand, replicas, pace, self.price_s, now, self._most - live)
        more = f" and {coming} coming" if coming else ""
        if live == 0:
            wanted = max(1, useful, worth)
            return Proposal(
                wanted, Cause.WAKE, lambda: f"{count(held, 'request')} held{more} and no replica"
            )
        if worth > useful:
            return Proposal(
                live + worth,
                Cause.HELD,
                lambda: (
                    f"{count(held, 'request')} held{more}, {worth} more would save waiting "
                    f"worth more than a start of {seconds(pace.cold_start_s)}"
                ),
            )
        if not useful:
            return Proposal(
                enough(demand, replicas, pace, now) if replicas.starting_at else 0,
                Cause.FITS,
                lambda: f"{count(held, 'request')} held{more} fit",
            )
        return Proposal(
            live + useful,
            Cause.HELD,
            lambda: (
                f"{count(held, 'request')} held{more}, {late} would wait longer than "
                f"{HORIZON} x the {seconds(pace.cold_start_s)} a new replica needs"
            ),
        )

    def _average(self, demand: Demand, replicas: Replicas, now: float) -> Proposal:
        """Demand over what a replica should carry, once its mean exceeds what is ready for long.

        Long is one horizon in which nothing is starting: a backlog that a start is already on the
        way for is not counted twice. Only what was there all that time counts, and a burst at its
        end is left to useful-start. It catches what that cannot see: a queue behind a request
        longer than most, and replicas that are merely full.
        """
        mean, capacity, live = self._mean.mean(now), self._capacity, replicas.live
        carried = _ceil(mean / capacity)
        self._averaged = min(self._averaged, carried)
        if replicas.starting_at or carried <= live:
            self._above_since = self._sustained = math.inf
        elif self._above_since > now:
            self._above_since = now
        elif now >= self._above_since + MEAN_S:
            self._sustained = min(self._sustained, mean)
        since, sustained = self._above_since, min(mean, self._sustained)
        wanted = _ceil(min(sustained, demand.total) / capacity)
        if now < since + HORIZON * self.cold_start_s:
            fit = Proposal(min(wanted, live), Cause.FITS, lambda: f"{counts(demand)} fit")
            goes_on = f"demand still averages {mean:.1f} over {MEAN_S:.0f} s"
            return larger(fit, Proposal(self._averaged, Cause.FITS, lambda: goes_on))
        self._averaged = wanted
        return Proposal(
            wanted,
            Cause.DEMAND,
            lambda: (
                f"demand averaged {sustained:.1f} at least over {MEAN_S:.0f} s, more than the "
                f"{live * capacity:g} that {count(live, 'replica')} should carry, "
                f"for {seconds(now - since)}"
            ),
        )


_NO_DEMAND = Proposal(0, Cause.IDLE, lambda: "no demand")


def _capacity(slots: int) -> float:
    """Requests that one replica should carry at once."""
    return slots * UTILIZATION if slots >= UTILIZATION_FROM else slots


def _ceil(value: float) -> int:
    """The ceiling, forgiving the last digits of a sum of floats."""
    return math.ceil(value - 1e-9)
