"""Ours at several prices beside other autoscalers, on one trace: GPU-hours at the same mean wait.

    python -m loadtests.price_sweep --trace FILE… [--cold-start S] [--concurrency N] [--price P…]

Each price is one trade of hours for waits. A peer's line says how much less ours takes at the
peer's wait, between neighbouring prices, without those that another price beats in both; a line of
ours, how much less it takes than the best peer or mixture of two that waits no longer.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path

from rich.console import Console

from hotplate.autoscaler.errors import AutoscalerError
from hotplate.autoscaler.simulator.arrivals import RequestTrace, read
from hotplate.autoscaler.simulator.outcome import Outcome
from hotplate.autoscaler.simulator.policies import POLICIES, Setup, simulate
from loadtests.harness.report import column, table_of

PRICES_GPU_S = (75.0, 150.0, 300.0, 600.0, 1200.0, 2400.0, 4800.0)
OURS = "ours"

Point = tuple[float, float]
"""Mean wait in seconds, GPU-hours."""


@dataclass(frozen=True)
class Line:
    """One policy at one length of cold starts."""

    policy: str
    cold_start_s: float | None = column("cold start s")
    gpu_hours: float | None = column("GPU-h", 2)
    starts: float | None = column("starts")
    wait_s: float | None = column("mean wait s", 2)
    p99_s: float | None = column("p99 s", 1)
    saved_percent: float | None = column("% saved by ours at that wait", 1)
    beside_mixture_percent: float | None = column("% saved beside the best two peers", 1)
    cpu_ms: float | None = column("CPU ms", 1)


def sweep(
    trace: Mapping[str, RequestTrace],
    cold_start_s: float,
    concurrency: int = 1,
    prices: Sequence[float] = PRICES_GPU_S,
) -> list[Line]:
    """Every peer, then ours at each price (GPU-seconds that one avoided cold start is worth)."""
    setup = Setup(cold_start_s, concurrency)
    ours = {
        price: simulate(OURS, trace, Setup(cold_start_s, concurrency, price_gpu_s=price))[0]
        for price in prices
    }
    peers = {name: simulate(name, trace, setup)[0] for name in POLICIES if name != OURS}
    curve = frontier(point(outcome) for outcome in ours.values())
    points = [point(outcome) for outcome in peers.values()]
    lines = []
    for name, outcome in peers.items():
        wait_s, hours = point(outcome)
        saved = _percent_less(hours_at(curve, wait_s), hours)
        lines.append(line_of(name, outcome, cold_start_s, saved_percent=saved))
    for price, outcome in ours.items():
        wait_s, hours = point(outcome)
        saved = _percent_less(hours, mixture_at(points, wait_s))
        name = f"{OURS}, price {price:g}"
        lines.append(line_of(name, outcome, cold_start_s, beside_mixture_percent=saved))
    return lines


def line_of(
    name: str,
    outcome: Outcome,
    cold_start_s: float,
    *,
    saved_percent: float | None = None,
    beside_mixture_percent: float | None = None,
) -> Line:
    wait_s, hours = point(outcome)
    return Line(
        name,
        cold_start_s,
        hours,
        float(outcome.starts),
        wait_s,
        outcome.wait_s.p99,
        saved_percent,
        beside_mixture_percent,
    )


def _percent_less(hours: float | None, than: float | None) -> float | None:
    return None if hours is None or not than else 100 * (1 - hours / than)


def point(outcome: Outcome) -> Point:
    return outcome.wait_s.mean, outcome.gpu_hours.total


def frontier(points: Iterable[Point]) -> list[Point]:
    """Those of which no other has both less wait and fewer hours, by their waits."""
    best: list[Point] = []
    for each in sorted(points):
        if not best or each[1] < best[-1][1]:
            best.append(each)
    return best


def hours_at(curve: Sequence[Point], wait_s: float) -> float | None:
    """GPU-hours at that wait, between the neighbouring points of a curve, and those of the last
    beyond it; None = all wait longer."""
    if curve and wait_s > curve[-1][0]:
        return curve[-1][1]
    for (below_s, dear), (above_s, cheap) in pairwise(curve):
        if below_s <= wait_s <= above_s:
            share = (wait_s - below_s) / (above_s - below_s) if above_s > below_s else 0.0
            return dear + share * (cheap - dear)
    return None


def mixture_at(points: Sequence[Point], wait_s: float) -> float | None:
    """The fewest GPU-hours that one of the points, or a mixture of two, takes for at most that mean
    wait; None = all wait longer."""
    return min(_mixtures(sorted(points), wait_s), default=None)


def _mixtures(points: Sequence[Point], wait_s: float) -> Iterator[float]:
    yield from (hours for waited_s, hours in points if waited_s <= wait_s)
    for two in combinations(points, 2):
        hours = hours_at(two, wait_s)
        if hours is not None:
            yield hours


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trace", nargs="+", type=Path, required=True, metavar="FILE")
    parser.add_argument("--cold-start", type=float, default=60.0, metavar="S")
    parser.add_argument("--concurrency", type=int, default=1, metavar="N")
    parser.add_argument("--price", nargs="+", type=float, default=PRICES_GPU_S, metavar="GPU_S")
    flags = parser.parse_args()
    began = time.monotonic()
    try:
        trace = read(flags.trace, random.Random(0))
    except AutoscalerError as error:
        sys.exit(f"{error}")
    lines = sweep(trace, flags.cold_start, flags.concurrency, flags.price)
    title = ", ".join(path.name for path in flags.trace)
    Console(width=None if sys.stdout.isatty() else 160).print(
        table_of(f"{title}: {flags.concurrency} slots", lines, time.monotonic() - began)
    )


if __name__ == "__main__":
    main()
