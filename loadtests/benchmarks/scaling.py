"""GPU-hours and waits of our rule and of others' on a simulated trace of many models.

The part `tick` is what one decision for each of a thousand services costs, when all have work, and
sharing what there is among them: enough for all, and a hundred GPUs.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from hotplate.autoscaler.amounts import GIB, UNLIMITED, Amounts
from hotplate.autoscaler.decider import Decider
from hotplate.autoscaler.grants import Ask
from hotplate.autoscaler.policy import Demand, Policy, Replicas
from hotplate.autoscaler.shares import Shares
from hotplate.autoscaler.simulator.arrivals import Arrivals
from hotplate.autoscaler.simulator.outcome import Outcome
from hotplate.autoscaler.simulator.policies import POLICIES, Setup, simulate
from loadtests.many_models import rows
from loadtests.report import column

COLD_STARTS_S = {"20s": 20.0, "60s": 60.0, "180s": 180.0}
TICK = "tick"
PARTS = [*COLD_STARTS_S, TICK]
SERVICES, ORGANIZATIONS = 1000, 20
TICK_GPUS = (math.inf, 100)
PRICES_GPU_S = (75.0, 150.0, 300.0, 600.0, 1200.0, 2400.0, 4800.0)
"""Of ours: each is one trade of hours for waits."""
OURS = "ours"

Point = tuple[float, float]
"""Mean wait in seconds, GPU-hours."""


@dataclass(frozen=True)
class Line:
    """One policy at one length of cold starts."""

    policy: str
    cold_start_s: float | None = column("cold start s")
    gpu_hours: float | None = column("GPU-h", 1)
    starts: float | None = column("starts")
    wait_s: float | None = column("mean wait s", 2)
    p99_s: float | None = column("p99 s", 1)
    saved_percent: float | None = column("% saved by ours at that wait", 1)
    cpu_ms: float | None = column("CPU ms", 1)


async def measure(folder: Path, quick: bool, *parts: str) -> Sequence[Line]:
    trace = many_models(models=20, days=1.0) if quick else many_models(models=60, days=5.0)
    lines: list[Line] = []
    for part in parts or PARTS:
        if part == TICK:
            lines += [_tick(gpus) for gpus in TICK_GPUS]
        else:
            lines += await asyncio.to_thread(_lines, trace, COLD_STARTS_S[part])
    return lines


def many_models(models: int, days: float, seed: int = 1) -> dict[str, Arrivals]:
    trace: dict[str, Arrivals] = {}
    for arrival_s, service_s, deployment, organization in rows(models, days, seed):
        arrivals = trace.setdefault(deployment, Arrivals(organization))
        arrivals.arrival_s.append(arrival_s)
        arrivals.service_s.append(service_s)
    return trace


def _lines(trace: Mapping[str, Arrivals], cold_start_s: float) -> list[Line]:
    ours = {
        price: simulate(OURS, trace, Setup(cold_start_s, price_gpu_s=price))[0]
        for price in PRICES_GPU_S
    }
    curve = sorted(_point(outcome) for outcome in ours.values())
    peers = {
        name: simulate(name, trace, Setup(cold_start_s))[0] for name in POLICIES if name != OURS
    }
    lines = [_line(name, outcome, cold_start_s, curve) for name, outcome in peers.items()]
    return lines + [
        _line(f"{OURS}, price {price:.0f}", outcome, cold_start_s)
        for price, outcome in ours.items()
    ]


def _line(name: str, outcome: Outcome, cold_start_s: float, curve: Sequence[Point] = ()) -> Line:
    wait_s, hours = _point(outcome)
    at = hours_at(curve, wait_s)
    saved = None if at is None else 100 * (1 - at / hours)
    return Line(name, cold_start_s, hours, float(outcome.starts), wait_s, outcome.wait_s.p99, saved)


def _tick(gpus: float) -> Line:
    """CPU of one decision for each service and of sharing so many GPUs among their wishes, where
    each has requests and some a replica idle."""
    deciders = [Decider(Policy(0, 20, 4), now=0.0) for _ in range(SERVICES)]
    shares = Shares[int](capacity=UNLIMITED._replace(gpus=gpus))
    each = Amounts(gpus=1, cpus=2, memory_bytes=GIB, replicas=1)
    held = [2 if gpus == math.inf else 0] * SERVICES
    costs_ms = []
    for second in range(1, 21):
        now = 2.0 * second
        began = time.process_time()
        for number, decider in enumerate(deciders):
            decider.observe(Demand((second * 7 + number) % 5 + 1, 0, 1.0), now)
            wish = decider.decide(Replicas(held[number]), now)
            team = f"team-{number % ORGANIZATIONS}"
            shares.state(Ask(number, team, each, wish.desired, wish.kept, held[number]))
        shares.settle()
        held = [shares.grant(number).replicas for number in range(SERVICES)]
        costs_ms.append(1000 * (time.process_time() - began))
    scarce = "enough GPUs" if gpus == math.inf else f"{gpus} GPUs"
    return Line(f"{OURS}, tick of {SERVICES} services, {scarce}", cpu_ms=median(costs_ms))


def _point(outcome: Outcome) -> Point:
    return outcome.wait_s.mean, outcome.gpu_hours.total


def hours_at(curve: Sequence[Point], wait_s: float) -> float | None:
    """GPU-hours at that wait, between the neighbouring points; None outside of the curve."""
    for (below_s, dear), (above_s, cheap) in pairwise(curve):
        if below_s <= wait_s <= above_s:
            share = (wait_s - below_s) / (above_s - below_s) if above_s > below_s else 0.0
            return dear + share * (cheap - dear)
    return None
