"""How many replicas each of two revisions may have while one replaces the other; pure.

`shift` takes what there is of both (`Turnover`) and returns what each may have now (`Shift`).
Everything is about the entry service, whose replicas share the deployment's requests; what it calls
comes up beside. Applying a shift and asking again ends with the new revision alone.

| strategy | replicas at most | ready at least |
|---|---|---|
| none | all of both | as wanted |
| Recreate | as wanted | 0: the old one ends first |
| RollingUpdate | a quarter more, rounded up | as wanted |
| RampedSlowRollout | one more | as wanted |
| BestEffortControlledRollout | as wanted | as wanted but for the step that is under way |

Nothing here counts a crash: a replica that dies is fewer ready than wanted until it is back.
`comparison` says whether the new revision's answers are worse, which ends all of this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Strategy(StrEnum):
    """How a revision replaces the one before it."""

    NONE = "none"
    RECREATE = "Recreate"
    ROLLING = "RollingUpdate"
    RAMPED = "RampedSlowRollout"
    CONTROLLED = "BestEffortControlledRollout"

    @property
    def shares(self) -> bool:
        """Whether both revisions get requests while it goes on."""
        return self is not Strategy.NONE

    @property
    def needs_room(self) -> bool:
        """Whether a new replica comes before an old one goes, also where there is no room."""
        return self in (Strategy.ROLLING, Strategy.RAMPED)


class Phase(StrEnum):
    """Where a roll-out is, as the API says it."""

    NONE = "none"
    STARTING = "starting"
    SHIFTING = "shifting"
    PAUSED = "paused"
    DRAINING = "draining"
    DONE = "done"
    STOPPED = "stopped"


SURGE = 4
"""A rolling update has one more replica for each so many, begun ones too."""
FIRST_STEP = 5
"""A controlled one begins with one of so many, begun ones too."""
WATCH_S = 10.0
"""How long both revisions answer beside each other at least, for their answers to be compared."""
ENOUGH_ANSWERS = 400
"""Of so many answers of the new revision, the comparison has seen what there is to see."""


@dataclass(frozen=True)
class EntryReplicas:
    """Replicas of one revision's entry service."""

    ready: int = 0
    """They get requests; of a new revision only where all that it calls has a ready one."""
    starting: int = 0
    failing: int = 0
    """They crashed, fail their checks or wait for room."""
    waiting: int = 0
    """Those of the failing ones that wait for room."""
    ending: int = 0
    """They drain or are being stopped, and still exist."""

    @property
    def live(self) -> int:
        return self.ready + self.starting + self.failing

    @property
    def there(self) -> int:
        return self.live + self.ending


@dataclass(frozen=True)
class Progress:
    """How far a roll-out has come: kept in the store, so that it goes on after a restart."""

    step: int = 0
    """How many replicas the new revision may have by now; 0 = it has not begun."""
    step_at: float | None = None
    """Since when that many are ready, Unix seconds; None = they are not."""

    @staticmethod
    def of(kept: Mapping[str, Any]) -> Progress:
        """As the store has it."""
        return Progress(int(kept.get("step") or 0), kept.get("step_at"))


@dataclass(frozen=True)
class Turnover:
    """What there is of two revisions, one of which replaces the other."""

    strategy: Strategy
    wanted: int
    """How many replicas the deployment should have in all, as the autoscaler says."""
    size: int
    """How many the new revision is to have at the end, at least 1."""
    old: EntryReplicas
    new: EntryReplicas
    now: float
    """Unix seconds."""
    progress: Progress = Progress()
    complete: bool = True
    """Whether what the new entry service calls is there, in its full number."""
    others: int = 0
    """Replicas of the old revision's other services, and of earlier revisions."""
    paused: bool = False
    ramp_s: float = 30.0
    compared: bool = True
    """Whether answers are compared, so that both have to answer for some time."""
    answers: int = 0
    """Of the new revision, since both serve."""
    granted: int | None = None
    """How many the new one may have where quota or machine permit fewer than `size`."""

    @property
    def most_wanted(self) -> int:
        """What bounds are counted from: a revision that asks for more has it from the start on."""
        return max(1, self.wanted, self.size)

    @property
    def there(self) -> int:
        return self.old.there + self.new.there


@dataclass(frozen=True)
class Shift:
    """What both revisions may have now."""

    old: int
    new: int
    progress: Progress
    phase: Phase
    over: bool = False
    """The new revision has all that it needs, and serves alone from now on."""
    next_at: float | None = None
    """When to look again although nothing has changed, Unix seconds."""
    note: str = ""
    """What it waits for, as the end of a sentence; empty = for replicas."""


def shift(turnover: Turnover) -> Shift:
    """What each revision may have now."""
    if turnover.paused:
        return _paused(turnover)
    return _STEPS[turnover.strategy](turnover)


def _paused(t: Turnover) -> Shift:
    """Nothing moves; only what the autoscaler asks for beyond that goes to the old one."""
    if t.strategy is Strategy.NONE:
        old = t.wanted
    elif t.strategy is Strategy.RECREATE:
        old = 0 if t.new.there else t.wanted
    else:
        old = max(min(t.old.live, t.wanted), t.wanted - t.new.live)
    return Shift(old, t.new.live, t.progress, Phase.PAUSED, note="it is paused")


def _beside(t: Turnover) -> Shift:
    """All of the new one beside the old one, then the switch."""
    over = t.complete and t.new.ready >= _sufficient(t)
    return Shift(t.wanted, t.size, t.progress, Phase.STARTING, over)


def _recreate(t: Turnover) -> Shift:
    if t.old.there or t.others:
        return Shift(
            0,
            min(t.new.live, t.size),
            t.progress,
            Phase.DRAINING,
            note="the old revision ends first",
        )
    over = t.complete and t.new.ready >= _sufficient(t)
    return Shift(0, t.size, t.progress, _phase(t), over)


def _rolling(t: Turnover) -> Shift:
    most = t.most_wanted + math.ceil(t.most_wanted / SURGE)
    all_ready = t.complete and t.new.ready >= t.size
    progress = _marked(t, t.size, all_ready)
    watched_at = _watched_at(t, progress)
    over = all_ready and watched_at is None
    kept = t.most_wanted - t.new.ready
    if not over:  # the last one answers beside the new ones, to be compared with
        kept = max(kept, min(1, t.old.ready))
    old, new = _within(t, most, kept, t.size)
    return Shift(
        old,
        new,
        progress,
        _phase(t),
        over,
        watched_at if all_ready else None,
        _watching(all_ready and not over),
    )


def _ramped(t: Turnover) -> Shift:
    # What there is was allowed, though nobody may have kept a note of it.
    step = min(max(t.progress.step, t.new.live, 1), t.size)
    reached = t.new.ready >= step
    progress = _marked(t, step, reached)
    over, next_at, note = False, None, ""
    if reached and progress.step_at is not None:
        next_at = progress.step_at + t.ramp_s
        note = f"each step lasts {t.ramp_s:g} s"
        if t.now >= next_at:
            next_at, note = None, ""
            over = step >= t.size and t.complete
            if step < t.size:
                step += 1
                progress = Progress(step)
    kept = max(t.most_wanted + 1 - step, t.most_wanted - t.new.ready)
    old, new = _within(t, t.most_wanted + 1, kept, step)
    return Shift(old, new, progress, _phase(t), over, next_at, note)


def _controlled(t: Turnover) -> Shift:
    first = math.ceil(t.most_wanted / FIRST_STEP)
    step = min(max(t.progress.step, t.new.live, first), t.size)
    last_alone = step >= t.size and not t.old.there
    reached = t.new.ready >= (_sufficient(t) if last_alone else step)
    progress = _marked(t, step, reached)
    over, next_at = False, None
    if reached:
        next_at = _watched_at(t, progress)
        if next_at is None:
            over = step >= t.size and t.complete
            if step < t.size:
                # Steps double, so that their sums are 1, 3, 7 … times the first one.
                step = min(2 * step + first, t.size)
                progress = Progress(step)
    # The new one's size may be less than what is wanted; the old one then ends with the last step.
    kept = 0 if step >= t.size else t.most_wanted - step
    old, new = _within(t, t.most_wanted, kept, step)
    note = _watching(next_at is not None)
    return Shift(old, new, progress, _phase(t), over, next_at, note)


_STEPS: Mapping[Strategy, Callable[[Turnover], Shift]] = {
    Strategy.NONE: _beside,
    Strategy.RECREATE: _recreate,
    Strategy.ROLLING: _rolling,
    Strategy.RAMPED: _ramped,
    Strategy.CONTROLLED: _controlled,
}


def _within(t: Turnover, most: int, kept: int, goal: int) -> tuple[int, int]:
    """How many the old and the new one may have, where `kept` of the old one would do and `goal` of
    the new one is aimed at, and there are never more than `most`.

    Once the new one answers, none is started of the old one any longer.
    """
    room = max(0, most - t.there)
    old = max(0, min(kept, t.wanted))
    if t.new.ready:
        old = min(old, t.old.live)
    begun = min(room, max(0, old - t.old.live - t.old.ending))
    old = min(old, t.old.live + t.old.ending + begun)
    return old, min(goal, t.new.live + room - begun)


def _sufficient(t: Turnover) -> int:
    """As many as there is room for, and at least one, which proves that it can start."""
    size = t.size if t.granted is None else min(t.size, t.granted)
    return max(1, size - t.new.waiting)


def _marked(t: Turnover, step: int, reached: bool) -> Progress:
    """The progress at this step: the moment at which it was reached stays."""
    if not reached:
        return Progress(step)
    known = t.progress.step_at if t.progress.step == step else None
    # A clock that was set back must not make a step last until it has caught up.
    return Progress(step, t.now if known is None else min(known, t.now))


def _watched_at(t: Turnover, progress: Progress) -> float | None:
    """Until when both have to go on answering; None = it was long enough, or is not compared."""
    alone = not t.old.ready
    if not t.compared or alone or progress.step_at is None or t.answers >= ENOUGH_ANSWERS:
        return None
    until = progress.step_at + WATCH_S
    return until if t.now < until else None


def _watching(watched: bool) -> str:
    return "its answers are compared with the old revision's" if watched else ""


def _phase(t: Turnover) -> Phase:
    return Phase.SHIFTING if t.new.ready else Phase.STARTING
