"""How many replicas demand needs now, before windows, step limits and bounds apply."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from statistics import median

from hotplate.autoscaler.policy import Cause, Demand, Policy, Replicas
from hotplate.autoscaler.rules.ages import Ages
from hotplate.autoscaler.rules.growth import Growth
from hotplate.autoscaler.rules.proposal import Proposal, count, demand_text, larger, seconds
from hotplate.autoscaler.rules.useful_start import (
    HORIZON,
    StartPace,
    late_requests,
    sufficient_replicas,
    useful_starts,
)
from hotplate.autoscaler.rules.waiting_cost import worthwhile_starts
from hotplate.autoscaler.rules.windows import WindowMean

TICK_S = 2.0
"""How often to decide while figures change without an event (a queue waits, a mean catches up).
Knative's value."""
MEAN_S = 6.0
"""Span of the mean demand. It is Knative's panic window, short enough to see a burst."""
UTILIZATION = 0.8
"""The share of its slots that a replica should use, where it has at least `UTILIZATION_FROM`."""
UTILIZATION_FROM = 4
"""Below this concurrency the spare share would be a fraction of one slot, and would double the
number of replicas."""
COLD_START_S = 10.0
"""The assumed cold start until the first one has been observed."""
SHORTEST_START_S = 0.01
"""A shorter cold start counts as this one, since times are divided by it."""
COLD_STARTS = 20
"""The median is taken over this many cold starts: enough that one slow pull does not matter, and
few enough to follow a change."""


class DemandRule:
    """Turns demand into a proposal, and learns how fast replicas work and start.

    `cold_starts_s`: earlier cold starts in seconds, oldest first. `service_s`: how long requests
    last, seconds; 0 = not known.
    """

    def __init__(
        self, policy: Policy, cold_starts_s: Iterable[float] = (), service_s: float = 0.0
    ) -> None:
        self._sets_scale_up = policy.sets_scale_up
        self._concurrency = policy.concurrency
        self._max_replicas = policy.max_replicas
        self.price_s = policy.price_gpu_s
        """GPU-seconds that one avoided cold start is worth."""
        self._capacity = _capacity(policy.concurrency)
        self._mean = WindowMean(MEAN_S)
        self._growth = Growth()
        self._ages = Ages()
        self.service_s = service_s
        self._above_since = math.inf
        self._sustained = math.inf
        """The lowest mean demand since then, once the mean has had time to catch up."""
        self._averaged = 0
        """The number of replicas that the mean has proposed and still supports."""
        self.total = self.level = 0
        """Requests in flight and queued; how many replicas they fill, at most `max_replicas`."""
        self._pace: StartPace | None = None
        self.cold_starts_s = deque(cold_starts_s, COLD_STARTS)
        self.cold_start_s = median(self.cold_starts_s) if self.cold_starts_s else COLD_START_S

    def observe(self, demand: Demand, now: float) -> None:
        in_flight, queued, service_s, *_ = demand
        self._ages.observe(demand, now)
        if service_s and service_s != self.service_s:
            self.service_s, self._pace = service_s, None
        self.total = total = in_flight + queued
        self.level = self.level_of(total)
        self._mean.record(total, now)
        self._growth.record(total, now)

    def forget_ages(self) -> None:
        """The gateway was not heard, or began anew: requests that run tell nothing for now."""
        self._ages.forget()

    def level_of(self, total: int) -> int:
        """How many replicas `total` requests fill, at most `max_replicas`."""
        return min(-(-total // self._concurrency), self._max_replicas)

    def record_cold_start(self, cold_start_s: float) -> None:
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
        """How fast replicas work and start. Until the gateway reports a service time, a request is
        assumed to last as long as a cold start."""
        pace = self._pace
        if pace is None:
            service_s = self.service_s or self.cold_start_s
            pace = self._pace = StartPace(self._concurrency, service_s, self.cold_start_s)
        return pace

    def _pace_at(self, now: float) -> StartPace:
        """The pace, where requests that run may say that they last longer than those that ended."""
        pace = self.pace
        lasts_s = self._ages.lasts_s(pace.service_s, now)
        return pace if lasts_s == pace.service_s else pace._replace(service_s=lasts_s)

    def propose(self, demand: Demand, replicas: Replicas, live: int, now: float) -> Proposal:
        """The largest proposal of the rules below; at least 1 replica while there is demand.

        `demand` is what was observed last, `live` the number of replicas.
        """
        total = self.total
        if not total:
            self._above_since, self._averaged = math.inf, 0
            return _NO_DEMAND
        if self._sets_scale_up:
            return self._by_formula(demand, live)
        fit = self.level if self.level < live else live
        proposal = Proposal(fit, Cause.FITS, lambda: f"{demand_text(demand)} fit")
        if demand.queued or not live:
            proposal = larger(proposal, self._late(demand, replicas, now))
        is_calm = self._above_since == math.inf and not self._averaged
        if is_calm and total <= live * self._capacity:
            return proposal
        return larger(proposal, self._average(demand, replicas, now))

    def next_at(self, demand: Demand, replicas: Replicas, live: int, now: float) -> float:
        """When the proposal may grow although nothing changes; inf = never.

        Requests that run get older, and are at some time older than requests usually get. Apart
        from that, it does not grow while a replica starts: the sooner that one is ready, the fewer
        requests are late. Otherwise the mean catches up with demand, and may then stay above what
        the replicas should carry.
        """
        older_at = math.inf
        if demand.queued and live < self._max_replicas and not self._sets_scale_up:
            older_at = max(self._ages.older_at(self.pace.service_s), now + TICK_S)
        return min(older_at, self._mean_at(replicas, demand, live, now))

    def _mean_at(self, replicas: Replicas, demand: Demand, live: int, now: float) -> float:
        """When the mean may propose more although nothing changes; inf = never."""
        total = self.total
        if self._averaged and now < self._mean.settled_at:
            return now + TICK_S
        if not total or (not demand.queued and total <= live * self._capacity):
            return math.inf
        if self._sets_scale_up or replicas.starting_at or live >= self._max_replicas:
            return math.inf
        sustained_at = self._above_since + HORIZON * self.cold_start_s
        tick_at = now + TICK_S if now < self._mean.settled_at else math.inf
        return min(tick_at, sustained_at if sustained_at > now else math.inf)

    def _by_formula(self, demand: Demand, live: int) -> Proposal:
        """BentoCloud's formula: ceil(demand / concurrency)."""
        level, slots = self.level, self._concurrency

        def why() -> str:
            text = f"{demand_text(demand)} at concurrency {slots}"
            return text if live else f"{text} and no replica"

        if live == 0:
            return Proposal(level, Cause.WAKE, why)
        return Proposal(level, Cause.DEMAND if level > live else Cause.FITS, why)

    def _late(self, demand: Demand, replicas: Replicas, now: float) -> Proposal:
        """The live replicas, and the starts that help requests that are queued or soon will be.

        Requests that arrive until a new replica is ready count half, since on average they wait
        half of that time.
        """
        pace, live, queued = self._pace_at(now), replicas.live, demand.queued
        coming = int(self._growth.per_s(now) * pace.cold_start_s / 2) if queued else 0
        late, useful, worth = self._starts(demand, replicas, pace, now)
        there = max(useful, worth)
        if coming:
            demand = demand._replace(queued=queued + coming)
            late, useful, worth = self._starts(demand, replicas, pace, now)
        forecast = max(useful, worth) - there
        waiting = f"{count(queued, 'request')} queued" + (f" and {coming} coming" if coming else "")
        if pace.service_s > self.pace.service_s:
            waiting += f", those that run say that one takes {seconds(pace.service_s)}"
        if live == 0:
            needed = max(1, useful, worth)
            return Proposal(
                needed, Cause.WAKE, lambda: f"{waiting} and no replica", forecast=forecast
            )
        if worth > useful:
            return Proposal(
                live + worth,
                Cause.QUEUED,
                lambda: (
                    f"{waiting}, {count(worth, 'more replica')} would save waiting "
                    f"worth more than a start of {seconds(pace.cold_start_s)}"
                ),
                forecast=forecast,
            )
        if not useful:
            return Proposal(
                sufficient_replicas(demand, replicas, pace, now) if replicas.starting_at else 0,
                Cause.FITS,
                lambda: f"{waiting} fit",
            )
        return Proposal(
            live + useful,
            Cause.QUEUED,
            lambda: (
                f"{waiting}, {late} would wait longer than "
                f"{HORIZON} x the {seconds(pace.cold_start_s)} that a new replica needs"
            ),
            forecast=forecast,
        )

    def _starts(
        self, demand: Demand, replicas: Replicas, pace: StartPace, now: float
    ) -> tuple[int, int, int]:
        """The late requests, the starts that are useful for them, and those that are worthwhile."""
        late = late_requests(demand, replicas, pace, now)
        most = self._max_replicas - replicas.live
        worth = worthwhile_starts(demand, replicas, pace, self.price_s, now, most)
        return late, useful_starts(late, pace), worth

    def _average(self, demand: Demand, replicas: Replicas, now: float) -> Proposal:
        """Mean demand over what a replica should carry, once the mean has exceeded what the ready
        replicas should carry for a whole horizon.

        No replica may start during that horizon, so that a backlog for which a replica already
        starts does not count twice. Only the lowest mean of that time counts; a burst at its end
        is the useful start's. This rule catches what that one cannot see: a queue behind an
        unusually long request, and replicas that are merely full.
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
        needed = self._replicas_for(min(sustained, demand.total), live, now)
        if now < since + HORIZON * self.cold_start_s:
            fit = Proposal(min(needed, live), Cause.FITS, lambda: f"{demand_text(demand)} fit")
            still = f"demand still averages {mean:.1f} over {MEAN_S:.0f} s"
            return larger(fit, Proposal(self._averaged, Cause.FITS, lambda: still))
        self._averaged = needed
        return Proposal(
            needed,
            Cause.DEMAND,
            lambda: (
                f"for {seconds(now - since)} demand averaged at least {sustained:.1f} over "
                f"{MEAN_S:.0f} s, more than the {live * capacity:g} that "
                f"{count(live, 'replica')} should carry"
            ),
        )

    def _replicas_for(self, requests: float, live: int, now: float) -> int:
        """How many replicas should carry so many requests at once, of which the live ones run as
        many as they have slots.

        The others queue, and a queue of short requests that a few replicas would empty is no
        demand for as many slots: it gets only what still finds work when it is ready.
        """
        running = min(requests, live * self._concurrency)
        useful = useful_starts(_ceil(requests - running), self._pace_at(now))
        return min(_ceil(requests / self._capacity), _ceil(running / self._capacity) + useful)


_NO_DEMAND = Proposal(0, Cause.IDLE, lambda: "no demand")


def _capacity(slots: int) -> float:
    """How many requests one replica should carry at once."""
    return slots * UTILIZATION if slots >= UTILIZATION_FROM else slots


def _ceil(value: float) -> int:
    """The ceiling, tolerant of the rounding error of a sum of floats."""
    return math.ceil(value - 1e-9)
