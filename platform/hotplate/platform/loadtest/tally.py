"""Figures of a load test's requests; pure, and one pass over any number of them.

Latency counts from the moment at which a request was due, so that a load maker or a server that
comes to a stand cannot hide those that it delayed (Tene's "coordinated omission"). Latencies and
first bytes are those of answers: a refusal that comes at once does not make a deployment faster.

Percentiles of requests are exact, by nearest rank. Those of the times between events, of which
there may be tens of millions, are within 0.1 %.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hotplate.autoscaler.simulator.outcome import percentile
from hotplate.platform.loadtest.samples import REFUSALS, RequestSample

PERCENTS = (50, 90, 95, 99)
MOST_STEPS = 300
WIDTHS_S = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600)
"""How long a step may be: what divides a minute or an hour, so that its times are round."""
FINENESS = 1000
"""Buckets of the times between events: each is e^(1/FINENESS) times the one before, so that its
middle is within 0.05 % of what is in it."""
LEAST_S = 1e-6
"""A shorter time between two events counts as this one."""

Distribution = dict[str, float]
"""`mean`, `p50`, `p90`, `p95`, `p99` and `max`, in seconds."""


@dataclass(frozen=True)
class Steps:
    """The time of a run in steps of equal length, from second 0 on."""

    width_s: int
    count: int

    @staticmethod
    def over(duration_s: float, ended_at_s: float) -> Steps:
        """At most `MOST_STEPS` while requests are asked, so that runs of one duration have the same
        steps, and as many more as the last answers took."""
        width_s = next((w for w in WIDTHS_S if w * MOST_STEPS >= duration_s), 0)
        width_s = width_s or WIDTHS_S[-1] * math.ceil(duration_s / WIDTHS_S[-1] / MOST_STEPS)
        return Steps(width_s, max(1, math.ceil(ended_at_s / width_s)))

    def at(self, second: float) -> int:
        """The number of the step; what is before the first or after the last counts to that."""
        return min(self.count - 1, max(0, int(second / self.width_s)))


@dataclass(frozen=True)
class Tally:
    """What became of the requests of a run."""

    requests: int
    sent: int
    """Those that were sent within the run's duration."""
    answered: int
    refused: int
    failed: int
    answered_in_time: int
    """Those that were answered within the run's duration."""
    latency_s: Distribution | None
    """Of the answers; None where there are none."""
    first_byte_s: Distribution | None
    """From when the request was due; None where no answer began."""
    organizations: dict[str, dict[str, Any]]
    """By name: `requests`, `answered`, `refused` and `latency_s`."""
    series: dict[str, list[Any]]
    """Of each step: `sent`, by when a request was sent; `answered`, `failed` and `refused`, by when
    that happened; `p95_s` of the answers to requests that were due in it, None where none was."""


def tally(
    samples: Iterable[RequestSample],
    duration_s: float,
    steps: Steps,
    organizations: Sequence[str] = (),
) -> Tally:
    """The figures of the samples, in any order. `duration_s` is how long requests were asked;
    `organizations` are the names that the samples count."""
    latencies = [array("d") for _ in range(steps.count)]
    first_bytes = array("d")
    sent, answered, failed, refused = ([0] * steps.count for _ in range(4))
    of_each = [_Organization() for _ in organizations]
    in_time = answered_in_time = 0
    width_s, last = steps.width_s, steps.count - 1
    # A million requests pass here: places are computed without a call.
    for due_s, sent_s, first_byte_s, end_s, status, organization, _, _ in samples:
        place = int(sent_s / width_s)
        sent[0 if place < 0 else place if place < last else last] += 1
        if sent_s < duration_s:
            in_time += 1
        place = int(end_s / width_s)
        place = 0 if place < 0 else place if place < last else last
        one = of_each[organization] if of_each else None
        if one is not None:
            one.requests += 1
        if 200 <= status < 300:
            answered[place] += 1
            latency_s = end_s - due_s
            due = int(due_s / width_s)
            latencies[0 if due < 0 else due if due < last else last].append(latency_s)
            if end_s <= duration_s:
                answered_in_time += 1
            if first_byte_s == first_byte_s:  # not NaN
                first_bytes.append(first_byte_s - due_s)
            if one is not None:
                one.latencies.append(latency_s)
        elif status in REFUSALS:
            refused[place] += 1
            if one is not None:
                one.refused += 1
        else:
            failed[place] += 1
    everything = array("d")
    p95_s: list[float | None] = []
    for some in latencies:
        everything += some
        p95_s.append(_rounded(percentile(sorted(some), 95)) if some else None)
    return Tally(
        requests=sum(sent),
        sent=in_time,
        answered=sum(answered),
        refused=sum(refused),
        failed=sum(failed),
        answered_in_time=answered_in_time,
        latency_s=distribution(everything),
        first_byte_s=distribution(first_bytes),
        organizations={
            name: one.figures() for name, one in zip(organizations, of_each, strict=True)
        },
        series={
            "sent": sent,
            "answered": answered,
            "failed": failed,
            "refused": refused,
            "p95_s": p95_s,
        },
    )


class _Organization:
    """What became of one organization's requests."""

    __slots__ = ("latencies", "refused", "requests")

    def __init__(self) -> None:
        self.requests = self.refused = 0
        self.latencies = array("d")
        """Of its answers."""

    def figures(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "answered": len(self.latencies),
            "refused": self.refused,
            "latency_s": distribution(self.latencies),
        }


def counts_by_step(times_s: Iterable[float], steps: Steps) -> list[int]:
    """How many of these moments are in each step."""
    found = Counter(map(steps.at, times_s))
    return [found[step] for step in range(steps.count)]


def distribution(values_s: Sequence[float]) -> Distribution | None:
    """Exact; None where there are no values."""
    if not values_s:
        return None
    ordered = sorted(values_s)
    return _figures(
        math.fsum(ordered) / len(ordered),
        [percentile(ordered, percent) for percent in PERCENTS],
        ordered[-1],
    )


def distribution_of_many(values_s: Sequence[float]) -> Distribution | None:
    """Percentiles within 0.1 %, in memory that does not grow with the number of values; None where
    there are none."""
    if not values_s:
        return None
    log, floor = math.log, math.floor
    counts: Counter[int] = Counter()
    for value_s in values_s:
        counts[floor(FINENESS * log(value_s if value_s > LEAST_S else LEAST_S))] += 1
    most_s = max(values_s)
    ranks = [max(1, math.ceil(percent / 100 * len(values_s))) for percent in PERCENTS]
    percentiles: list[float] = []
    passed = 0
    for bucket in sorted(counts):
        passed += counts[bucket]
        while len(percentiles) < len(ranks) and passed >= ranks[len(percentiles)]:
            percentiles.append(min(most_s, math.exp((bucket + 0.5) / FINENESS)))
    return _figures(math.fsum(values_s) / len(values_s), percentiles, most_s)


def _figures(mean: float, percentiles: Sequence[float], most: float) -> Distribution:
    figures = {"mean": mean}
    figures |= {f"p{p}": value for p, value in zip(PERCENTS, percentiles, strict=True)}
    return {name: _rounded(value) for name, value in (figures | {"max": most}).items()}


def _rounded(seconds: float) -> float:
    """To the microsecond."""
    return round(seconds, 6)
