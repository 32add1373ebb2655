"""`hotplate simulate`: what a trace of requests would cost under which policy, and who waits."""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.table import Table

from hotplate.autoscaler.amounts import UNLIMITED
from hotplate.autoscaler.grants import Quota
from hotplate.autoscaler.simulator.arrivals import read
from hotplate.autoscaler.simulator.demand_log import read_log
from hotplate.autoscaler.simulator.outcome import Outcome
from hotplate.autoscaler.simulator.policies import POLICIES, Setup, simulate
from hotplate.autoscaler.simulator.simulation import Decided
from hotplate.platform.errors import BadSetting

ALL = "all"
OURS = "ours"
WIDTH = 110
"""Columns that the table needs, also where nobody says how many there are."""


def run(arguments: argparse.Namespace) -> int:
    """Simulate and print. Raises BadSetting or TraceInvalid before anything is printed."""
    setup = _setup(arguments)
    names = _names(arguments.policy or [OURS])
    if arguments.plot and Path(arguments.plot).suffix.lower() != ".svg":
        raise BadSetting(f"--plot {arguments.plot}: the plot is an SVG; name a file *.svg")
    seed = _whole("--seed", arguments.seed, least=0)
    if arguments.log:
        trace = read_log(map(Path, arguments.log))
    else:
        trace = read(map(Path, arguments.trace), random.Random(seed))
    outcomes: dict[str, Outcome] = {}
    with ExitStack() as stack:
        file = stack.enter_context(_written(arguments.decisions)) if arguments.decisions else None
        for name in names:
            outcomes[name], fleets = simulate(
                name, trace, setup, _noting(file, name) if file else None
            )
            if arguments.plot and name == names[0]:
                from hotplate.platform.simulation_plot import plot

                plot(Path(arguments.plot), name, fleets)
    if arguments.json:
        print(json.dumps({"policies": {name: one.to_json() for name, one in outcomes.items()}}))
    else:
        _show(outcomes)
    return 0


def _setup(arguments: argparse.Namespace) -> Setup:
    """Of the flags that are given."""
    given: dict[str, Any] = {}
    if arguments.cold_start is not None:
        given["cold_start_s"] = _number("--cold-start", arguments.cold_start)
    if arguments.concurrency is not None:
        given["concurrency"] = _whole("--concurrency", arguments.concurrency)
    if arguments.instances is not None:
        given["instances"] = _whole("--instances", arguments.instances)
    if arguments.price is not None:
        given["price_gpu_s"] = _number("--price", arguments.price)
    if arguments.standby is not None:
        auto = arguments.standby == "auto"
        given["standby"] = "auto" if auto else _whole("--standby", arguments.standby, least=0)
    weights = _by_organization("--weight", arguments.weight or [])
    limits = _by_organization("--quota", arguments.quota or [])
    given["quotas"] = {
        name: Quota(
            UNLIMITED._replace(gpus=limits.get(name, math.inf)), weight=weights.get(name, 1.0)
        )
        for name in {**weights, **limits}
    }
    return Setup(**given)


def _names(given: Sequence[str]) -> list[str]:
    if ALL in given:
        return list(POLICIES)
    for name in given:
        if name not in POLICIES:
            nearest = get_close_matches(name, POLICIES, n=1, cutoff=0.4)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            raise BadSetting(f"--policy {name} is not one of {', '.join(POLICIES)}, {ALL}{hint}")
    return list(dict.fromkeys(given))


def _number(flag: str, value: str) -> float:
    """A finite number from 0 on."""
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise BadSetting(f"{flag} {value} is not a number from 0 on")
    return number


def _by_organization(flag: str, given: Sequence[str]) -> dict[str, float]:
    """`NAME=NUMBER`, each number above 0."""
    found = {}
    for text in given:
        name, _, value = text.rpartition("=")
        if not name or _number(flag, value) == 0:
            raise BadSetting(f"{flag} {text} is not ORGANIZATION=NUMBER, with a number above 0")
        found[name] = _number(flag, value)
    return found


def _whole(flag: str, value: str, least: int = 1) -> int:
    try:
        number = int(value)
    except ValueError:
        number = least - 1
    if number < least:
        raise BadSetting(f"{flag} {value} is not a whole number from {least} on")
    return number


def _written(path: str) -> IO[str]:
    try:
        return open(path, "w")
    except OSError as error:
        raise BadSetting(f"--decisions {path} cannot be written: {error.strerror}") from error


def _noting(file: IO[str], name: str) -> Callable[[Decided], None]:
    def note(decided: Decided) -> None:
        file.write(json.dumps({"policy": name, **vars(decided)}) + "\n")

    return note


def _show(outcomes: Mapping[str, Outcome]) -> None:
    table = Table(title="GPU-hours, and seconds that requests waited", box=None)
    columns = "policy total busy idle starting standby starts mean p50 p95 p99 >1s >5s cold"
    for column in columns.split():
        table.add_column(column, justify="left" if column == "policy" else "right")
    for name, one in outcomes.items():
        hours, wait_s = one.gpu_hours, one.wait_s
        spent = (hours.total, hours.busy, hours.idle, hours.starting, hours.standby)
        waited = (wait_s.mean, wait_s.p50, wait_s.p95, wait_s.p99)
        table.add_row(
            name,
            *(f"{value:.2f}" for value in spent),
            str(one.starts),
            *(f"{value:.2f}" for value in waited),
            *(f"{share:.1%}" for share in (one.share_over_1s, one.share_over_5s)),
            str(one.cold_hits),
        )
    Console(highlight=False, width=max(Console().width, WIDTH)).print(table)
