"""When each request of a load test is due; pure."""

from __future__ import annotations

import random
from array import array
from collections.abc import Mapping, Sequence

from hotplate.autoscaler.simulator.arrivals import MOST_REQUESTS, RequestTrace
from hotplate.machine.nearest import nearest
from hotplate.platform.errors import BadSetting
from hotplate.platform.loadtest.asking.shapes import LoadShape

LEAST_TRACE_S = 1.0
"""A trace lasts as long as its last request is away from its first, and at least so long."""


def poisson(
    shape: LoadShape, rate_per_s: float, duration_s: float, rng: random.Random
) -> array[float]:
    """The arrivals of a Poisson process whose rate follows the shape, seconds, in order.

    By thinning (Lewis and Shedler 1979): arrivals at the peak rate, each taken with the chance that
    the shape gives. Raises BadSetting if there would be too many.
    """
    expected = rate_per_s * duration_s * shape.mean
    if expected > MOST_REQUESTS:
        raise BadSetting(
            f"--rate {rate_per_s:g} for {duration_s:g} s would be {expected:.3g} requests; a load "
            f"test has at most {MOST_REQUESTS}: lower one of them"
        )
    due_s = array("d")
    at_s = 0.0
    while (at_s := at_s + rng.expovariate(rate_per_s)) < duration_s:
        share = shape.share(at_s / duration_s)
        if share >= 1.0 or rng.random() < share:
            due_s.append(at_s)
    return due_s


def beginnings(shape: LoadShape, users: int, duration_s: float) -> array[float]:
    """When each user of a closed loop begins, seconds: as many as the shape's share of them.

    User number i begins when the share has first reached i + 1 of them, or is about to.
    """
    steps = 1000
    shares = [shape.share(step / steps) for step in range(steps + 1)]
    found = array("d")
    step = 0
    for user in range(users):
        while step < steps and shares[step] * users <= user:
            step += 1
        found.append(duration_s * step / steps)
    return found


def of_trace(
    trace: Mapping[str, RequestTrace], deployment: str, speed: float, duration_s: float | None
) -> tuple[array[float], float]:
    """The arrivals of a trace from its first on, `speed` times as fast, and how long it lasts.

    Of several deployments those of `deployment` are taken; "" = none of them is known to be meant.
    `duration_s` ends the trace early. Raises BadSetting where no request is meant.
    """
    if len(trace) == 1:
        (meant,) = trace.values()
    elif deployment in trace:
        meant = trace[deployment]
    else:
        names = ", ".join(sorted(trace)[:10]) + (", …" if len(trace) > 10 else "")
        if not deployment:
            raise BadSetting(
                f"--trace has requests for {len(trace)} deployments ({names}), and of a URL it is "
                "not known which one it is: give the requests of one"
            )
        near = nearest(deployment, trace)
        hint = f"; did you mean {near}?" if near else ""
        raise BadSetting(
            f"--trace has no request for {deployment}, only for {len(trace)} others ({names}){hint}"
        )
    first_s = meant.arrival_s[0]
    due_s = array("d", [(arrival_s - first_s) / speed for arrival_s in meant.arrival_s])
    lasts_s = max(due_s[-1], LEAST_TRACE_S)
    if duration_s is not None and duration_s < lasts_s:
        lasts_s = duration_s
        due_s = array("d", [at_s for at_s in due_s if at_s < duration_s])
    return due_s, lasts_s


def mean_rate(due_s: Sequence[float], duration_s: float) -> float:
    """Requests/s."""
    return len(due_s) / duration_s
