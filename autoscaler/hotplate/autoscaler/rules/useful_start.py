"""Useful start: start only replicas that will serve a request sooner than the live ones would.

A queued request is *late* when no slot that is live or starting can begin it within the horizon.
Only late requests justify a start, and only of as many replicas as will still find work when they
are ready. Counting requests that *finish* within the horizon, instead of begin, doubles the starts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from hotplate.autoscaler.policy import Demand, Replicas

HORIZON = 1.25
"""The horizon in cold starts: a new replica has to be sooner by a quarter, because the median is
not a bound."""


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
    """Seconds until a replica that began to start at `started_at` is expected to be ready; 0 for
    one that is overdue."""
    due_at = (started_at if started_at < now else now) + pace.cold_start_s
    return due_at - now if due_at > now else 0.0


def requests_begun(demand: Demand, replicas: Replicas, pace: StartPace, now: float) -> int:
    """How many requests the slots that are live or starting can begin within the horizon.

    A slot that is free at t begins floor((horizon - t) / service) + 1. Busy slots are taken as
    evenly spread over their service time, the i-th of n free at (i - 1/2) x service / n: together
    they become free at one even pace. A starting replica's slots are free when it is due.
    """
    slots = replicas.ready * pace.concurrency
    busy = min(demand.in_flight, slots)
    horizon_s = pace.horizon_s
    rounds = horizon_s / pace.service_s
    begun = math.floor(busy * rounds + 0.5) + (slots - busy) * (math.floor(rounds) + 1)
    for started_at in replicas.starting_at:
        begun += begun_by_starting(started_at, pace, now)
    return begun


def begun_by_starting(started_at: float, pace: StartPace, now: float) -> int:
    """How many requests a replica that began to start at `started_at` begins within the horizon."""
    remaining_s = pace.horizon_s - due_in(started_at, pace, now)
    return pace.concurrency * (math.floor(remaining_s / pace.service_s) + 1)


def late_requests(demand: Demand, replicas: Replicas, pace: StartPace, now: float) -> int:
    """How many queued requests cannot begin within the horizon on what is live or starting."""
    return max(0, demand.queued - requests_begun(demand, replicas, pace, now))


def sufficient_replicas(demand: Demand, replicas: Replicas, pace: StartPace, now: float) -> int:
    """How many of the replicas suffice that no queued request is late. The newest starts are
    dispensable first; a ready replica never is."""
    spare = requests_begun(demand, replicas, pace, now) - demand.queued
    live = replicas.live
    for started_at in sorted(replicas.starting_at, reverse=True):
        spare -= begun_by_starting(started_at, pace, now)
        if spare < 0:
            break
        live -= 1
    return live


def useful_starts(late: int, pace: StartPace) -> int:
    """How many replicas are worth starting for `late` requests.

    A replica serves concurrency / service requests per second. Short requests share a replica that
    is busy with them for one cold start; each long request gets a slot of its own.
    """
    busy_s = max(pace.service_s, pace.cold_start_s)
    return math.ceil(late * (pace.service_s / busy_s) / pace.concurrency)
