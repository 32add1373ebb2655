"""What waiting costs, against what replicas cost: one price decides what is kept and what starts.

The price says how many GPU-seconds it is worth that one request need not wait for a cold start.
So a second of one request's waiting is worth price / cold start GPU-seconds.
"""

from __future__ import annotations

import math

from hotplate.autoscaler.policy import Demand, Replicas
from hotplate.autoscaler.rules.useful_start import StartPace, due_in, useful_starts

LEAST_MISSED = 0.1
"""Of a cold start: no replica is taken to be worth less, or many replicas would come and go."""
FEW = 20
"""Held requests up to which chance is reckoned with; of more, the mean says enough."""


def missed_s(level: int, pace: StartPace) -> float:
    """Waiting that comes of it, in request-seconds, when the level's replica is not there.

    Without the first one, a request waits for a cold start. The k-th one's requests wait for slots
    of the k - 1 others, of which one comes free every service / slots seconds, the i-th of them i
    times as long; where that is longer than a cold start, a new replica is there before.
    """
    slots, cold_start_s = pace.concurrency, pace.cold_start_s
    if level <= 1:
        return cold_start_s
    one_by_one_s = pace.service_s / (slots * (level - 1)) * slots * (slots + 1) / 2
    missed = one_by_one_s * -math.expm1(-cold_start_s / one_by_one_s)
    return max(missed, LEAST_MISSED * cold_start_s)


def price_of(level: int, pace: StartPace, price_s: float) -> float:
    """GPU-seconds that it is worth to have the level's replica when its demand comes."""
    return price_s * missed_s(level, pace) / pace.cold_start_s


def worthwhile_starts(
    demand: Demand, replicas: Replicas, pace: StartPace, price_s: float, now: float, most: int
) -> int:
    """Replicas whose start costs less than the waiting that it saves those held; at most `most`.

    No more than still find work when they are ready (`useful_starts`), beside those that work.
    Until then, busy slots come free at random, one every service / slots seconds (as if
    the time that is left of a request did not depend on the time that it has had). What is held
    still then waits in line for the slots there are, with one replica more or without.
    """
    busy = -(-demand.in_flight // pace.concurrency)
    most = min(most, busy + useful_starts(demand.queued, pace) - replicas.live)
    if most <= 0:
        return 0
    slots = replicas.ready * pace.concurrency
    coming = len(replicas.starting_at) * pace.concurrency
    waiting = demand.queued - max(0, slots - demand.in_flight) - coming
    if waiting <= 0:
        return 0
    begun = slots * pace.cold_start_s / pace.service_s
    for started_at in replicas.starting_at:
        spent_s = pace.cold_start_s - due_in(started_at, pace, now)
        begun += pace.concurrency * spent_s / pace.service_s
    # The most likely course of many, or chance with few: more of them never justify fewer starts.
    chances = [_left(min(waiting, FEW), begun)]
    if waiting > FEW and begun < waiting:
        chances.append([(waiting - begun, 1.0)])
    value = price_s / pace.cold_start_s
    starts = 0
    while starts < most:
        more = starts * pace.concurrency
        saved_s = max(_saved_s(left, slots + coming + more, more, pace) for left in chances)
        if value * saved_s <= pace.cold_start_s:
            break
        starts += 1
    return starts


def _left(waiting: int, begun: float) -> list[tuple[float, float]]:
    """(how many of those waiting are left, how likely), where `begun` of them begin on average."""
    likely = math.exp(-begun)
    left: list[tuple[float, float]] = []
    for number in range(waiting):
        left.append((waiting - number, likely))
        likely *= begun / (number + 1)
    return left


def _saved_s(left: list[tuple[float, float]], slots: int, new: int, pace: StartPace) -> float:
    """Request-seconds that one replica more saves, where `new` of the slots come with it."""
    saved_s = 0.0
    for number, likely in left:
        line = number - new
        if line <= 0:
            break
        if not slots:
            return math.inf
        shorter = max(0.0, line - pace.concurrency)
        without = line * (line + 1) / slots
        saved_s += likely * (without - shorter * (shorter + 1) / (slots + pace.concurrency)) / 2
    return saved_s * pace.service_s
