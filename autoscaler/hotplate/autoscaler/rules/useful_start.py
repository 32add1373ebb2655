"""Useful start: start only replicas that will begin work sooner than waiting would.

A held request is *late* when no slot that is live or starting can begin it within the horizon. Only
late requests justify a start, and only as many replicas as will still find work when ready.
Counting requests that can *finish* within the horizon, instead of begin, doubles the starts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from hotplate.autoscaler.policy import Demand, Replicas

HORIZON = 1.25
"""The horizon in cold starts: a new replica has to win by a quarter, because p50 is not a bound."""


class StartPace(NamedTuple):
    """How fast replicas work and start."""

    concurrency: int
    service_s: float
    """Mean time of a request in its slot; > 0."""
    cold_start_s: float
    """Median time from the start of a replica to ready; > 0."""

    @property
    def horizon_s(self) -> float:
        return HORIZON * self.cold_start_s


def due_in(started_at: float, pace: StartPace, now: float) -> float:
    """Seconds until a replica is ready that began to start then; late ones may be any moment."""
    due_at = (started_at if started_at < now else now) + pace.cold_start_s
    return due_at - now if due_at > now else 0.0


def begin_within(demand: Demand, replicas: Replicas, pace: StartPace, now: float) -> int:
    """How many requests the slots that are live or starting can begin within the horizon.

    A slot that is free at t begins floor((horizon - t) / service) + 1. Busy slots are taken as
    evenly spread over their service time, the i-th of n free at (i - 1/2) x service / n: together
    they come free at one even pace. A starting replica's slots are free when it is due.
    """
    slots = replicas.ready * pace.concurrency
    busy = min(demand.in_flight, slots)
    horizon_s = pace.horizon_s
    rounds = horizon_s / pace.service_s
    begun = math.floor(busy * rounds + 0.5) + (slots - busy) * (math.floor(rounds) + 1)
    for started_at in replicas.starting_at:
        begun += begun_by(started_at, pace, now)
    return begun


def begun_by(started_at: float, pace: StartPace, now: float) -> int:
    """How many requests a replica begins within the horizon that began to start then."""
    left_s = pace.horizon_s - due_in(started_at, pace, now)
    return pace.concurrency * (math.floor(left_s / pace.service_s) + 1)


def late_requests(demand: Demand, replicas: Replicas, pace: StartPace, now: float) -> int:
    """Held requests that cannot begin within the horizon on what is live or starting."""
    return max(0, demand.queued - begin_within(demand, replicas, pace, now))


def enough(demand: Demand, replicas: Replicas, pace: StartPace, now: float) -> int:
    """How many of the replicas suffice for no held request to be late; the newest start is left out
    first, and none that is ready."""
    spare = begin_within(demand, replicas, pace, now) - demand.queued
    live = replicas.live
    for started_at in sorted(replicas.starting_at, reverse=True):
        spare -= begun_by(started_at, pace, now)
        if spare < 0:
            break
        live -= 1
    return live


def useful_starts(late: int, pace: StartPace) -> int:
    """Replicas worth starting for `late` requests.

    A replica works off concurrency / service requests per second. Short requests share one that
    takes a cold start's time for them; long ones get a slot each.
    """
    busy_s = max(pace.service_s, pace.cold_start_s)
    return math.ceil(late * (pace.service_s / busy_s) / pace.concurrency)
