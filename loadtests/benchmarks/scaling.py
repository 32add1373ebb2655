"""GPU-hours and waits of our rule and of others' on a simulated trace of many models.

The part `long` is requests that become longer than any before, with cold starts of 60 s.
The part `tick` is the cost of one decision for each of a thousand services that all have work, and
of sharing GPUs among them: enough for all, and a hundred.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from hotplate.autoscaler.decider import Decider
from hotplate.autoscaler.policy import Demand, Policy, Replicas
from hotplate.autoscaler.sharing.allocation import AllocationRequest
from hotplate.autoscaler.sharing.allocator import Allocator
from hotplate.autoscaler.sharing.amounts import GIB, UNLIMITED, Amounts
from hotplate.autoscaler.simulator.arrivals import RequestTrace
from hotplate.autoscaler.simulator.policies import POLICIES, Setup, simulate
from loadtests.long_requests import COLD_START_S as LONG_COLD_START_S
from loadtests.long_requests import LONG
from loadtests.many_models import rows
from loadtests.price_sweep import OURS, Line, line_of, sweep

COLD_STARTS_S = {"20s": 20.0, "60s": 60.0, "180s": 180.0}
LONG_PART, TICK = "long", "tick"
PARTS = [*COLD_STARTS_S, LONG_PART, TICK]
SERVICES, ORGANIZATIONS = 1000, 20
TICK_GPUS = (math.inf, 100)


async def measure(folder: Path, quick: bool, *parts: str) -> Sequence[Line]:
    trace = many_models(models=20, days=1.0) if quick else many_models(models=60, days=5.0)
    lines: list[Line] = []
    for part in parts or PARTS:
        if part == TICK:
            lines += [_tick(gpus) for gpus in TICK_GPUS]
        elif part == LONG_PART:
            lines += _long()
        else:
            lines += await asyncio.to_thread(sweep, trace, COLD_STARTS_S[part])
    return lines


def many_models(models: int, days: float, seed: int = 1) -> dict[str, RequestTrace]:
    trace: dict[str, RequestTrace] = {}
    for arrival_s, service_s, deployment, organization in rows(models, days, seed):
        arrivals = trace.setdefault(deployment, RequestTrace(organization))
        arrivals.arrival_s.append(arrival_s)
        arrivals.service_s.append(service_s)
    return trace


def _long() -> list[Line]:
    """Each trace of long requests under each policy."""
    lines = []
    for name, trace in LONG.items():
        for policy in POLICIES:
            outcome, _ = simulate(policy, {name: trace()}, Setup(LONG_COLD_START_S))
            lines.append(line_of(f"{policy}, {name}", outcome, LONG_COLD_START_S))
    return lines


def _tick(gpus: float) -> Line:
    """The CPU of one decision for each service, and of sharing so many GPUs among them.

    Each service has requests, and some have an idle replica.
    """
    deciders = [Decider(Policy(0, 20, 4), now=0.0) for _ in range(SERVICES)]
    shares = Allocator[int](capacity=UNLIMITED._replace(gpus=gpus))
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
            shares.request(
                AllocationRequest(number, team, each, wish.desired, wish.kept, held[number])
            )
        shares.settle()
        held = [shares.allocation(number).replicas for number in range(SERVICES)]
        costs_ms.append(1000 * (time.process_time() - began))
    scarce = "enough GPUs" if gpus == math.inf else f"{gpus} GPUs"
    return Line(f"{OURS}, tick of {SERVICES} services, {scarce}", cpu_ms=median(costs_ms))
