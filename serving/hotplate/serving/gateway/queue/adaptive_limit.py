"""How many requests a replica should have at once, learnt from what it shows. Pure.

Up to some number of requests at once, its *knee*, a replica answers more per second with each one
more, and each takes as long as if it were alone; beyond the knee each takes longer and nothing is
gained. By Little's law the knee is throughput x time, the point at which BBR holds a connection
(Cardwell et al., 2016; Kleinrock, 1979). Of two levels of load, the lower one's time and the higher
one's throughput say where it lies:

    knee = throughput(high) x time(low) = high x time(low) / time(high)

That is the higher level where requests do not slow each other down, the lower one where nothing is
gained, and otherwise the knee between them. Envoy's adaptive concurrency and Netflix's
concurrency-limits (Vegas, Gradient2) move a limit by response times, too; they compare them with
the least time seen, which says nothing where requests differ in length. Here two levels that follow
each other are compared: a *trial* takes the limit down or up until enough is known, and then the
limit moves or stays.

* A trial needs a load that lasts: no burst that is about to end is held up for one.
* A trial goes down while nothing is known of less load, or if requests take longer than before; the
  more they differ in length, the further.
* A trial goes up while requests wait.
* Trials are repeated now and then, since knees move.
* Responses that do not end for long, such as streams and sockets, are no load by themselves: where
  they have all slots, the limit grows soon (`grow_if_stalled`).
* Requests that begin before a replica's first response has ended are no samples: the replica is
  cold.

`baseline.py` says what is known outside of trials, `load_times.py` which requests are measured and
how two loads compare.
"""

from __future__ import annotations

import math
from typing import Final

from hotplate.serving.gateway.protocol.routes import FIRST_SLOTS
from hotplate.serving.gateway.queue.baseline import ENOUGH, Baseline
from hotplate.serving.gateway.queue.load_times import SHORTEST_S, Cohort, LoadComparison, LoadTimes

MOST: Final = 1000
OVERLONG: Final = 4
"""A trial that has had this many times the requests it needs is decided, or given up."""
SURE: Final = 1.6
"""Standard errors between a trial's outcome and the border that make it certain."""
NEAR, FAR, FURTHEST = 0.7, 1.39, 2.8
"""How far down a trial goes (log): to a half, to a quarter, and where requests take that much
longer than before, to a sixteenth."""
SPREADS: Final = 2.0
"""The same in standard deviations of one request's log time."""
APART: Final = 0.1
"""Loads that differ by less than this (log) cannot be compared."""
NEARLY: Final = 1.1
FULL: Final = 0.9
LASTS: Final = 1.5
"""A load lasts if this many times the requests in flight have ended without a pause."""
PAUSE: Final = (16, 128)
"""Requests between two trials up, at first and at most; or 8 times the limit."""
REFRESH: Final = (1024, 32)
"""Requests between two trials down where nothing has changed; or this many times the limit."""
SHORT_STALL_S: Final = 1.0
LONG_STALL_S: Final = 10.0
"""The limit of a stalled replica grows after four usual requests' time without an end, but after
this time at least and at most."""
GROWTH: Final = 1.1

BASE: Final = 0
DOWN: Final = 1
UP: Final = 2

Mark = tuple[float, int]
"""Of a running request: the load up to its beginning (`_area`), and its number."""


class AdaptiveLimit:
    """The limit of one replica. It has to know of every request's beginning and end, and the
    replica must have no more than `limit` at a time.

    Each call takes constant time. Times are seconds of one clock that does not go back.
    """

    def __init__(self, learnt: int = FIRST_SLOTS, least: int = 1) -> None:
        """`learnt` is what was learnt before; it is never lowered below `least`."""
        self.learnt = min(max(1, learnt), MOST)
        """The limit learnt so far."""
        self.limit = self.learnt
        """The limit now; during a trial it differs from `learnt`."""
        self._least = least
        self._in_flight = 0
        self._last_number = 0
        """Counts the requests."""
        self._area = 0.0
        """The integral of the requests in flight over time: its growth while a request runs,
        divided by the request's duration, is the load that the request met."""
        self._area_at = 0.0
        self._busy = 0
        """Ends since the replica was last idle."""
        self._warm = False
        """Whether any request has ended."""
        self._progress_at = -math.inf
        """When the last request ended, the first one began, or the limit grew."""
        self._cohort = Cohort()
        """The requests that are measured now: opened when the replica has as many as limit and
        demand allow."""
        self._phase = BASE
        self._baseline = Baseline()
        self._trial = LoadTimes()
        self._stride = NEAR
        """How far down the next trial goes."""
        self._ends = 0
        """Ends since the trial began, or since the last one ended."""
        self._ends_since_down = 0
        self._pause = 0
        """Ends before the next trial."""
        self._futile = 0
        """Trials in a row that changed nothing."""

    def begin(self, now: float) -> Mark:
        """A request goes to the replica; the mark is for its end."""
        self._advance_clock(now)
        self._in_flight += 1
        self._last_number += 1
        cohort = self._cohort
        if self._last_number == 1:
            self._progress_at = now
        elif (
            self._warm and not cohort.is_open and FULL * self.limit <= self._in_flight <= self.limit
        ):
            self._open_cohort()
        cohort.begin(self._last_number, now)
        return self._area, self._last_number

    def drop(self, begun_at: float, mark: Mark, now: float, *, waiting: bool) -> None:
        """A request ended that is no sample: it was not sent, or failed."""
        self._advance_clock(now)
        self._in_flight -= 1
        self._progress_at = now
        self._cohort.end(mark[1], begun_at)
        if self._phase != BASE:
            self._ends += 1
            self._give_up_if_overlong()
        self._rest_if_idle(waiting=waiting)

    def end(self, begun_at: float, mark: Mark, now: float, *, waiting: bool) -> None:
        """A request has its response; `waiting`: others wait for its slot."""
        self._advance_clock(now)
        area, number = mark
        took_s = max(now - begun_at, SHORTEST_S)
        self._in_flight -= 1
        self._busy += 1
        self._ends += 1
        self._ends_since_down += 1
        self._progress_at, self._warm = now, True
        if self._cohort.end(number, begun_at):
            self._add_sample(math.log(took_s), math.log(max(1.0, (self._area - area) / took_s)))
        elif not self._cohort.is_open and not waiting and self._in_flight < self.limit:
            self._open_cohort()
        if self._phase == BASE:
            self._maybe_begin_trial(waiting)
        else:
            self._judge_trial(now, waiting)
        self._rest_if_idle(waiting=waiting)

    def grow_if_stalled(self, now: float) -> bool:
        """Call it while requests wait and every slot has a response that has begun and goes on.
        Returns whether the limit has grown."""
        usual = self._baseline.times
        usual_s = math.exp(usual.mean) if usual.count else 0.0
        still_s = min(max(SHORT_STALL_S, 4 * usual_s), LONG_STALL_S)
        if now < self._progress_at + still_s or self.learnt >= MOST:
            return False
        self._progress_at = now
        self.learnt = min(MOST, max(self.learnt + 1, int(self.learnt * GROWTH)))
        self._stop_trial()
        return True

    # Inside: samples

    def _advance_clock(self, now: float) -> None:
        self._area += self._in_flight * (now - self._area_at)
        self._area_at = now

    def _open_cohort(self) -> None:
        self._cohort.open(self._last_number, max(ENOUGH, self._in_flight // 2))

    def _rest_if_idle(self, *, waiting: bool) -> None:
        if not self._in_flight and not waiting:
            self._busy = 0
            if self._phase == DOWN:  # a trial up delays no request, so it may go on
                self._stop_trial()

    def _add_sample(self, log_s: float, log_load: float) -> None:
        if self._phase != BASE:
            self._trial.add(log_s, log_load)
            return
        slower = self._baseline.add(log_s, log_load)
        if slower is not None:
            self._pause = self._futile = 0
            self._stride = min(max(NEAR, slower), FURTHEST)
            if slower:
                self._cohort.close()

    # Inside: trials

    def _maybe_begin_trial(self, waiting: bool) -> None:
        base = self._baseline
        if not base.is_usable or not self._cohort.is_complete:
            return
        if self._ends < self._pause or self._busy < LASTS * math.exp(base.times.load):
            return
        every, times = REFRESH
        if not base.is_settled or self._ends_since_down > max(every, times * self.learnt):
            self._try_down()
        elif waiting and self.learnt < MOST:
            self._try_up(1.5 * self.learnt)

    def _try_down(self) -> None:
        self._ends_since_down = 0
        base = self._baseline.times
        load = min(math.exp(base.load), self.learnt)
        stride = max(self._stride, min(FAR, SPREADS * base.spread))
        to = max(1, self._least, int(load * math.exp(-stride)))
        if to > FULL * load:
            self._settle()
        else:
            self._begin_trial(DOWN, to)

    def _try_up(self, to: float) -> None:
        self._begin_trial(UP, min(MOST, round(to)))

    def _begin_trial(self, phase: int, to: int) -> None:
        self._phase, self.limit, self._trial, self._ends = phase, to, LoadTimes(), 0
        self._cohort.close()

    def _stop_trial(self) -> None:
        self._keep_limit()
        self._cohort.close()

    def _keep_limit(self) -> None:
        """The trial is over and its limit stays, so its cohort goes on."""
        self._phase, self.limit, self._ends = BASE, self.learnt, 0

    def _give_up(self) -> None:
        first, most = PAUSE
        self._pause = min(first << min(self._futile, 16), max(most, 8 * self.learnt))
        self._futile += 1
        self._stop_trial()

    def _give_up_if_overlong(self) -> None:
        if self._ends > OVERLONG * (self.limit + self.learnt + ENOUGH):
            self._give_up()

    def _settle(self) -> None:
        """A lower limit would gain nothing."""
        self._baseline.settled_mean, self._stride = self._baseline.times.mean, NEAR
        self._give_up()

    def _judge_trial(self, now: float, waiting: bool) -> None:
        cohort, trial, base = self._cohort, self._trial, self._baseline.times
        if not cohort.is_complete:
            self._give_up_if_overlong()
            return
        if trial.count < ENOUGH // 2:  # the others have failed
            self._open_cohort()
            return
        cohort.count_slow(trial, now)
        low, high = (trial, base) if self._phase == DOWN else (base, trial)
        if high.load - low.load < APART:  # demand was below both
            self._give_up()
            return
        outcome = LoadComparison(low, high)
        sure = outcome.certainty >= SURE
        if not sure and trial.count < OVERLONG * cohort.size:
            self._open_cohort()
        elif self._phase == UP:
            self._judge_up(outcome, waiting=waiting)
        elif outcome.is_steep:
            self._lower(outcome)
        elif sure or self._stride >= FAR:
            self._settle()
        else:
            self._stride = FAR
            self._stop_trial()

    def _lower(self, outcome: LoadComparison) -> None:
        to = self.limit
        self._futile = self._pause = 0
        self.learnt = min(self.learnt, max(to, round(outcome.knee)))
        if outcome.gains_nothing or self.learnt <= NEARLY * to:
            self.learnt = to
            self._stride = FAR
            self._baseline.replace(self._trial, LoadTimes())
            self._keep_limit()
        else:
            self._baseline.replace(LoadTimes(), self._trial)
            self._stop_trial()

    def _judge_up(self, outcome: LoadComparison, *, waiting: bool) -> None:
        to, learnt, knee = self.limit, self.learnt, outcome.knee
        if not outcome.is_steep:
            self._raise(to, knee, waiting=waiting)
        elif max(NEARLY * learnt, learnt + 1) <= knee < FULL * to:
            self._try_up(knee)
        else:
            self._give_up()

    def _raise(self, to: int, knee: float, *, waiting: bool) -> None:
        base = self._baseline
        self._futile = self._pause = 0
        base.settled_mean = math.nan
        if knee <= FULL * to:
            self.learnt = max(self.learnt, round(knee))
            base.replace(LoadTimes(), base.times)
            self._stop_trial()
            return
        self.learnt = to
        base.replace(self._trial, base.times)
        if waiting and to < MOST:
            self._try_up(2 * to)
        else:
            self._keep_limit()
