"""The cost of waiting against the cost of replicas: one price decides what is kept and what starts.

The price is the number of GPU-seconds that it is worth to spare one request a cold start. A second
of one request's waiting therefore costs price / cold start GPU-seconds.
"""

from __future__ import annotations

import math

from hotplate.autoscaler.policy import Demand, Replicas
from hotplate.autoscaler.rules.useful_start import StartPace, due_in, useful_starts

LEAST_SAVED = 0.1
"""The least share of a cold start that a replica is assumed to save. With less, many replicas would
come and go."""
FEW_REQUESTS = 20
"""Up to this many queued requests the distribution is calculated; of more, the mean is enough."""


def saved_waiting_s(level: int, pace: StartPace) -> float:
    """The waiting that the level's replica saves, in request-seconds.

    Without the first replica, a request waits for a cold start. Without the k-th, its requests wait
    for slots of the k - 1 others, one of which becomes free every service / slots seconds; the i-th
    request waits i times as long. Where that is longer than a cold start, a new replica is sooner.
    """
    slots, cold_start_s = pace.concurrency, pace.cold_start_s
    if level <= 1:
        return cold_start_s
    one_by_one_s = pace.service_s / (slots * (level - 1)) * slots * (slots + 1) / 2
    missed = one_by_one_s * -math.expm1(-cold_start_s / one_by_one_s)
    return max(missed, LEAST_SAVED * cold_start_s)


def price_at_level(level: int, pace: StartPace, price_s: float) -> float:
    """How many GPU-seconds it is worth to have the level's replica when its demand comes."""
    return price_s * saved_waiting_s(level, pace) / pace.cold_start_s


def worthwhile_starts(
    demand: Demand, replicas: Replicas, pace: StartPace, price_s: float, now: float, most: int
) -> int:
    """How many replicas cost less to start than the waiting of queued requests that they save; at
    most `most`.

    They are never more than will still find work when they are ready (`useful_starts`), beside the
    busy replicas. Until then, busy slots become free at random, one every service / slots seconds
    (as if a request's remaining time did not depend on its elapsed time). Requests that are still
    queued then wait in line for the slots, with or without one more replica.
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
    # Many requests: the mean, or the distribution of few, whichever saves more. So more requests
    # never justify fewer starts.
    outcomes = [_still_waiting(min(waiting, FEW_REQUESTS), begun)]
    if waiting > FEW_REQUESTS and begun < waiting:
        outcomes.append([(waiting - begun, 1.0)])
    value = price_s / pace.cold_start_s
    starts = 0
    while starts < most:
        more = starts * pace.concurrency
        saved_s = max(_saved_s(outcome, slots + coming + more, more, pace) for outcome in outcomes)
        if value * saved_s <= pace.cold_start_s:
            break
        starts += 1
    return starts


def _still_waiting(waiting: int, begun: float) -> list[tuple[float, float]]:
    """(number that still wait, probability), where `begun` requests begin on average: Poisson."""
    probability = math.exp(-begun)
    outcome: list[tuple[float, float]] = []
    for number in range(waiting):
        outcome.append((waiting - number, probability))
        probability *= begun / (number + 1)
    return outcome


def _saved_s(outcome: list[tuple[float, float]], slots: int, new: int, pace: StartPace) -> float:
    """The request-seconds that one more replica saves, where `new` of the slots come with it."""
    saved_s = 0.0
    for number, probability in outcome:
        line = number - new
        if line <= 0:
            break
        if not slots:
            return math.inf
        shorter = max(0.0, line - pace.concurrency)
        without = line * (line + 1) / slots
        saved_s += (
            probability * (without - shorter * (shorter + 1) / (slots + pace.concurrency)) / 2
        )
    return saved_s * pace.service_s
