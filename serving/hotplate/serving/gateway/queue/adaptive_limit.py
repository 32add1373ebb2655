"""How many requests a replica should have at once, learnt from what it shows. Pure.

Up to some number at once, its *knee*, a replica answers more a second with each one more, and each
takes as long as if it were alone; beyond it each takes longer and nothing is gained. By Little's
law the knee is throughput x time, the point at which BBR holds a connection (Cardwell et al., 2016;
Kleinrock, 1979). Of two levels of load, the lower one's time and the higher one's throughput say
where it lies:

    knee = throughput(high) x time(low) = high x time(low) / time(high)

That is the higher level where nobody waits for anybody, the lower one where nothing is gained, and
between them where the knee is. Envoy's adaptive concurrency and Netflix's concurrency-limits
(Vegas, Gradient2) move a limit by the time of answers, too; they hold it against the least that was
seen, which says nothing where requests differ in length. Here two levels that follow each other are
compared: a *trial* takes the limit down or up until enough is known, and then it moves or not.

* A trial wants a load that lasts: no burst that ends is held up for one.
* Down, while nothing is known of less load, or where requests take longer than they did; the more
  they differ in length, the further.
* Up, while somebody waits.
* Every so often once more, since knees move.
* Answers that go on and on, as streams and sockets do, are no load by themselves: where nothing
  else has the slots, there are soon more (`stalled`).
* What begins before a replica's first answer has ended teaches nothing: it is cold.
"""

from __future__ import annotations

import math
from typing import Final

from hotplate.serving.gateway.protocol.routes import FIRST_SLOTS
from hotplate.serving.gateway.queue.load_times import SHORTEST_S, Cohort, Times

MOST: Final = 1000
ENOUGH: Final = 16
"""Answers that tell a level's time; at large numbers, half of those that run at once."""
PATIENCE: Final = 4
"""After so many times as many, a trial that tells nothing for sure has to do."""
SURE: Final = 1.6
"""Standard errors by which a trial's outcome is to be off the border."""
STEEP: Final = 0.65
"""The slope of log time over log load from which on more at once is not worth its time."""
SHEER: Final = 0.8
"""The slope from which on nothing is gained."""
SLOWER: Final = math.log(1.5)
"""Nor is it worth it where each takes so much longer (log)."""
FLAT: Final = 0.35
"""The slope up to which nobody need try less load."""
CHANGED: Final = 0.25
"""What takes so much longer or shorter (log) than it did is to be looked at again."""
BRIEF: Final = 8
"""Answers that show such a change."""
NEAR, FAR, FURTHEST = 0.7, 1.39, 2.8
"""How far down a trial goes (log): to a half, to a quarter, and where requests take that much
longer than they did, to a sixteenth."""
TELLING: Final = 2.0
"""The same in standard deviations of one answer's log time."""
APART: Final = 0.1
"""Loads that came out nearer than this (log) tell nothing."""
HALF: Final = math.log(2)
NEARLY: Final = 1.1
FULL: Final = 0.9
LASTS: Final = 1.5
"""Answers in a row, over those that run at once, of a load that lasts."""
PAUSE: Final = (16, 128)
"""Answers between two trials up, at first and at most; or 8 times the number."""
REFRESH: Final = (1024, 32)
"""Answers between two trials down where nothing has changed; or so many times the number."""
SHORT_STALL_S: Final = 1.0
LONG_STALL_S: Final = 10.0
"""For how long nothing ends before the limit grows: four usual answers, but as long as this at
least and at most."""
GROWTH: Final = 1.1
FEW_LOWS: Final = 64
"""After so many answers at less load in a row, that is the load."""

BASE: Final = 0
DOWN: Final = 1
UP: Final = 2

Mark = tuple[float, int]
"""Of a request that runs: the load that there had been until it began, and its turn."""


class AdaptiveLimit:
    """One replica's. Say what begins and ends, and give it no more than `limit` at a time.

    Each call takes constant time. Times are seconds of one clock that does not go back.
    """

    def __init__(self, number: int = FIRST_SLOTS, least: int = 1) -> None:
        """`number` is what was learnt before; it is never lowered below `least`."""
        self.number = min(max(1, number), MOST)
        """What is learnt so far."""
        self.limit = self.number
        """How many it may have now: during a trial it is another number."""
        self._least = least
        self._in_flight = 0
        self._turn = 0
        """Counts the requests."""
        self._area = 0.0
        """The number in flight over time: what comes to it while a request runs, through its time,
        is that one's load."""
        self._area_at = 0.0
        self._busy = 0
        """Answers since there was nothing to do."""
        self._warm = False
        """Whether any has ended."""
        self._still_since = -math.inf
        """When the last one ended, the first one began, or the limit grew."""
        self._cohort = Cohort()
        """Who tells of the level: open since as much is in flight as limit and demand allow."""
        self._phase = BASE
        self._base = Times()
        """Where no trial is made."""
        self._low = Times()
        """The same at half the load or less, as it came."""
        self._lows = 0
        """Answers at such a load, one after the other."""
        self._brief = 0.0
        """The mean log time of the newest few."""
        self._settled = math.nan
        """What the base's was when less load gained nothing; NaN = that is not known."""
        self._trial = Times()
        self._stride = NEAR
        """How far down the next one goes."""
        self._spent = 0
        """Answers since the trial began, or since the last one ended."""
        self._since_down = 0
        self._pause = 0
        self._futile = 0
        """Trials one after the other that changed nothing."""

    def begin(self, now: float) -> Mark:
        """A request goes to the replica; the mark is for its end."""
        self._pass(now)
        self._in_flight += 1
        self._turn += 1
        cohort = self._cohort
        if self._turn == 1:
            self._still_since = now
        elif (
            self._warm and not cohort.is_open and FULL * self.limit <= self._in_flight <= self.limit
        ):
            self._open_cohort()
        cohort.begin(self._turn, now)
        return self._area, self._turn

    def drop(self, begun_at: float, mark: Mark, now: float, *, waiting: bool) -> None:
        """A request ended that teaches nothing: it was not sent, or failed."""
        self._pass(now)
        self._in_flight -= 1
        self._still_since = now
        self._cohort.end(mark[1], begun_at)
        if self._phase != BASE:
            self._spent += 1
            self._tire()
        self._rest_if_idle(waiting=waiting)

    def end(self, begun_at: float, mark: Mark, now: float, *, waiting: bool) -> None:
        """A request has its answer; `waiting`: others want its slot."""
        self._pass(now)
        area, turn = mark
        took_s = max(now - begun_at, SHORTEST_S)
        self._in_flight -= 1
        self._busy += 1
        self._spent += 1
        self._since_down += 1
        self._still_since, self._warm = now, True
        if self._cohort.end(turn, begun_at):
            self._learn(math.log(took_s), math.log(max(1.0, (self._area - area) / took_s)))
        elif not self._cohort.is_open and not waiting and self._in_flight < self.limit:
            self._open_cohort()
        if self._phase == BASE:
            self._perhaps_try(waiting)
        else:
            self._judge(now, waiting)
        self._rest_if_idle(waiting=waiting)

    def stalled(self, now: float) -> bool:
        """Somebody waits, and every slot's answer has begun and goes on. Whether there are more
        slots now."""
        usual_s = math.exp(self._base.mean) if self._base.count else 0.0
        still_s = min(max(SHORT_STALL_S, 4 * usual_s), LONG_STALL_S)
        if now < self._still_since + still_s or self.number >= MOST:
            return False
        self._still_since = now
        self.number = min(MOST, max(self.number + 1, int(self.number * GROWTH)))
        self._stop_trial()
        return True

    # Inside: what is known

    def _pass(self, now: float) -> None:
        self._area += self._in_flight * (now - self._area_at)
        self._area_at = now

    def _open_cohort(self) -> None:
        self._cohort.open(self._turn, max(ENOUGH, self._in_flight // 2))

    def _rest_if_idle(self, *, waiting: bool) -> None:
        if not self._in_flight and not waiting:
            self._busy = 0
            if self._phase == DOWN:  # one up holds nobody up: it goes on with the next load
                self._stop_trial()

    def _learn(self, log_s: float, log_load: float) -> None:
        base = self._base
        if self._phase != BASE:
            self._trial.add(log_s, log_load)
            return
        self._brief += (log_s - self._brief) / min(base.count + 1, BRIEF)
        if self._has_changed():
            self._start_anew(Times(), Times(), self._brief - self._settled)
            self._cohort.shut()
            return
        self._lows = self._lows + 1 if log_load < base.load - HALF else 0
        if base.count and log_load > base.load + HALF:
            self._start_anew(Times(), base)
        elif self._lows > FEW_LOWS:
            self._start_anew(self._low, Times())
        (self._low if self._lows else self._base).add(log_s, log_load)

    def _has_changed(self) -> bool:
        """Whether requests take longer or shorter than when the number was settled."""
        base = self._base
        if math.isnan(self._settled) or base.count < ENOUGH:
            return False
        return abs(self._brief - self._settled) > CHANGED + 3 * base.spread / math.sqrt(BRIEF)

    def _start_anew(self, base: Times, low: Times, longer: float = 0.0) -> None:
        """The load or the replica is another; requests take so much `longer` (log)."""
        self._base, self._low, self._lows = base, low, 0
        self._settled, self._pause, self._futile = math.nan, 0, 0
        self._stride = min(max(NEAR, longer), FURTHEST)

    def _is_flat(self) -> bool:
        """Whether less load, as it came, is known to take as long."""
        low, base = self._low, self._base
        apart = base.load - low.load
        return low.count >= ENOUGH and apart > HALF and base.mean - low.mean < FLAT * apart

    # Inside: trials

    def _perhaps_try(self, waiting: bool) -> None:
        base = self._base
        if base.count < ENOUGH or self._lows or not self._cohort.is_told:
            return
        if self._spent < self._pause or self._busy < LASTS * math.exp(base.load):
            return
        settled = not math.isnan(self._settled) or self._is_flat()
        every, times = REFRESH
        if not settled or self._since_down > max(every, times * self.number):
            self._try_down()
        elif waiting and self.number < MOST:
            self._try_up(1.5 * self.number)

    def _try_down(self) -> None:
        self._since_down = 0
        load = min(math.exp(self._base.load), self.number)
        stride = max(self._stride, min(FAR, TELLING * self._base.spread))
        to = max(1, self._least, int(load * math.exp(-stride)))
        if to > FULL * load:
            self._settle()
        else:
            self._begin_trial(DOWN, to)

    def _try_up(self, to: float) -> None:
        self._begin_trial(UP, min(MOST, max(self.number + 1, round(to))))

    def _begin_trial(self, phase: int, to: int) -> None:
        self._phase, self.limit, self._trial, self._spent = phase, to, Times(), 0
        self._cohort.shut()

    def _stop_trial(self) -> None:
        self._phase, self.limit, self._spent = BASE, self.number, 0
        self._cohort.shut()

    def _stay(self) -> None:
        """The trial's level is where it stays: who tells of it goes on to do so."""
        self._phase, self.limit, self._spent = BASE, self.number, 0

    def _give_up(self) -> None:
        first, most = PAUSE
        self._pause = min(first << min(self._futile, 16), max(most, 8 * self.number))
        self._futile += 1
        self._stop_trial()

    def _tire(self) -> None:
        """A trial that has told nothing for so long is over."""
        if self._spent > PATIENCE * (self.limit + self.number + ENOUGH):
            self._give_up()

    def _settle(self) -> None:
        """Less at once would gain nothing."""
        self._settled, self._stride = self._base.mean, NEAR
        self._give_up()

    def _judge(self, now: float, waiting: bool) -> None:
        cohort, trial, base = self._cohort, self._trial, self._base
        if not cohort.is_told:
            self._tire()
            return
        if trial.count < ENOUGH // 2:  # the others have failed
            self._open_cohort()
            self._tire()
            return
        cohort.count_slow(trial, now)
        low, high = (trial, base) if self._phase == DOWN else (base, trial)
        apart, slower = high.load - low.load, high.mean - low.mean
        if apart < APART:  # demand was below both
            self._give_up()
            return
        slope, error = slower / apart, math.sqrt(low.error2 + high.error2) / apart
        sure = abs(slope - STEEP) >= SURE * error
        if not sure and trial.count < PATIENCE * cohort.size:
            self._open_cohort()
            return
        steep = slope > STEEP or slower > SLOWER
        knee = math.exp(high.load - max(0.0, slower))
        if self._phase == UP:
            self._went_up(knee, steep=steep, waiting=waiting)
        elif steep:
            self._lower(knee, sheer=slope > SHEER)
        elif sure or self._stride >= FAR:
            self._settle()
        else:
            self._stride = min(FAR, 2 * self._stride)
            self._stop_trial()

    def _lower(self, knee: float, *, sheer: bool) -> None:
        to = self.limit
        self._futile = self._pause = 0
        self.number = min(self.number, max(to, round(knee)))
        if sheer or self.number <= NEARLY * to:
            self.number = to
            self._stride = min(FAR, 2 * self._stride)
            self._base, self._low = self._trial, Times()
            self._stay()
        else:
            self._base, self._low = Times(), self._trial
            self._stop_trial()

    def _went_up(self, knee: float, *, steep: bool, waiting: bool) -> None:
        to, number = self.limit, self.number
        if steep and max(NEARLY * number, number + 1) <= knee < FULL * to:
            self._try_up(knee)
        elif steep:
            self._give_up()
        else:
            self._raise(to, knee, waiting=waiting)

    def _raise(self, to: int, knee: float, *, waiting: bool) -> None:
        self._futile = self._pause = self._lows = 0
        self._low, self._settled = self._base, math.nan
        if knee <= FULL * to:
            self.number = max(self.number, round(knee))
            self._base = Times()
            self._stop_trial()
            return
        self.number, self._base = to, self._trial
        if waiting and to < MOST:
            self._try_up(2 * to)
        else:
            self._stay()
