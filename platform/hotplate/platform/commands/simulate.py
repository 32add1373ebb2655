"""`hotplate simulate`: what a trace of requests would cost under which policy, and who waits."""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.table import Table

from hotplate.autoscaler.sharing.allocation import Quota
from hotplate.autoscaler.sharing.amounts import UNLIMITED
from hotplate.autoscaler.simulator.arrivals import MOST_S, read
from hotplate.autoscaler.simulator.fleet import SimulatedDeployment
from hotplate.autoscaler.simulator.logged_demand import read_log
from hotplate.autoscaler.simulator.outcome import Outcome
from hotplate.autoscaler.simulator.policies import POLICIES, Setup, simulate
from hotplate.autoscaler.simulator.simulation import Decided
from hotplate.machine.nearest import nearest
from hotplate.platform.errors import BadSetting

ALL = "all"
OURS = "ours"
WIDTH = 1000
"""Columns that the table may have: no figure is cut, however wide the terminal is."""
MOST = 1_000_000
"""The largest count that is taken: a larger one is a slip."""
MOST_STANDBY = 1000
"""Empty instances are simulated one by one."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    requests = parser.add_mutually_exclusive_group(required=True)
    # A flag that is given twice adds to what it said before.
    several: dict[str, Any] = {"nargs": "+", "action": "extend"}
    requests.add_argument("--trace", **several, metavar="FILE", help="CSV of requests")
    requests.add_argument(
        "--log",
        **several,
        metavar="FILE",
        help="demand as `why NAME --log` printed it, instead of a trace",
    )
    parser.add_argument(
        "--policy", **several, metavar="NAME", help="policies to compare, or all (ours)"
    )
    parser.add_argument("--cold-start", metavar="S", help="duration of every start, seconds (60)")
    parser.add_argument("--concurrency", metavar="N", help="slots of a replica (1)")
    parser.add_argument("--instances", metavar="N", help="number of GPUs (no limit)")
    parser.add_argument(
        "--weight", **several, metavar="ORG=W", help="weight of an organization's share (1)"
    )
    parser.add_argument(
        "--quota", **several, metavar="ORG=N", help="GPUs that an organization may have (no limit)"
    )
    parser.add_argument(
        "--standby", metavar="N|auto", help="number of empty instances kept ready, or auto (0)"
    )
    parser.add_argument(
        "--price",
        metavar="GPU_S",
        help="with ours: GPU-seconds that one avoided cold start is worth (600)",
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        default="0",
        help="seed of the random numbers, for traces that only have rates (0)",
    )
    parser.add_argument("--json", action="store_true", help="figures as JSON")
    parser.add_argument(
        "--decisions", metavar="FILE", help="file that gets a line of JSON for each decision"
    )
    parser.add_argument("--plot", metavar="FILE", help="SVG or PNG of the first policy's run")


def run(arguments: argparse.Namespace) -> int:
    """Simulate and print. Raises BadSetting or TraceInvalid before anything is printed."""
    setup = _setup(arguments)
    names = _names(arguments.policy or [OURS])
    plot = _plot(Path(arguments.plot)) if arguments.plot is not None else None
    seed = _whole("--seed", arguments.seed, least=0)
    if arguments.log:
        trace = read_log(map(Path, arguments.log))
    else:
        trace = read(map(Path, arguments.trace), random.Random(seed))
    outcomes: dict[str, Outcome] = {}
    with ExitStack() as stack:
        file = None
        if arguments.decisions is not None:
            file = stack.enter_context(_written(arguments.decisions))
        for name in names:
            outcomes[name], fleets = simulate(
                name, trace, setup, _noting(file, name) if file else None
            )
            if plot is not None and name == names[0]:
                plot(name, fleets)
    if arguments.json:
        print(json.dumps({"policies": {name: one.to_json() for name, one in outcomes.items()}}))
    else:
        _show(outcomes)
    return 0


def _setup(arguments: argparse.Namespace) -> Setup:
    """The simulation that the flags describe."""
    given: dict[str, Any] = {}
    if arguments.cold_start is not None:
        given["cold_start_s"] = _number("--cold-start", arguments.cold_start, MOST_S["service_s"])
    if arguments.concurrency is not None:
        given["concurrency"] = _whole("--concurrency", arguments.concurrency)
    if arguments.instances is not None:
        given["instances"] = _whole("--instances", arguments.instances)
    if arguments.price is not None:
        given["price_gpu_s"] = _number("--price", arguments.price)
    if arguments.standby is not None:
        auto = arguments.standby == "auto"
        given["standby"] = (
            "auto" if auto else _whole("--standby", arguments.standby, 0, MOST_STANDBY)
        )
    weights = _by_organization("--weight", arguments.weight or [], _positive)
    limits = _by_organization("--quota", arguments.quota or [], _whole)
    given["quotas"] = {
        name: Quota(
            UNLIMITED._replace(gpus=limits.get(name, math.inf)), weight=weights.get(name, 1.0)
        )
        for name in {**weights, **limits}
    }
    return Setup(**given)


def _names(given: Sequence[str]) -> list[str]:
    for name in given:
        if name not in (*POLICIES, ALL):
            near = nearest(name.lower(), POLICIES, likeness=0.4)
            hint = f"; did you mean {near}?" if near else ""
            raise BadSetting(f"--policy {name} is not one of {', '.join(POLICIES)}, {ALL}{hint}")
    return list(POLICIES if ALL in given else dict.fromkeys(given))


def _number(flag: str, value: str, most: float = math.inf) -> float:
    """A finite number from 0 on."""
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and 0 <= number <= most):
        bounds = "from 0 on" if math.isinf(most) else f"from 0 to {most:.0f}"
        raise BadSetting(f"{flag} {value} is not a number {bounds}")
    return number


def _positive(flag: str, value: str) -> float:
    number = _number(flag, value)
    if not number:
        raise BadSetting(f"{flag} {value} is not a number above 0")
    return number


def _by_organization(
    flag: str, given: Sequence[str], number: Callable[[str, str], float]
) -> dict[str, float]:
    """`NAME=NUMBER`."""
    found = {}
    for text in given:
        name, _, value = text.rpartition("=")
        if not name:
            raise BadSetting(f"{flag} {text} is not ORGANIZATION=NUMBER")
        found[name] = number(f"{flag} of {name}:", value)
    return found


def _whole(flag: str, value: str, least: int = 1, most: int = MOST) -> int:
    try:
        number = int(value)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise BadSetting(f"{flag} {value} is not a whole number from {least} to {most}")
    return number


@contextmanager
def _written(path: str) -> Iterator[IO[str]]:
    try:
        with open(path, "w") as file:
            yield file
    except OSError as error:
        raise BadSetting(f"--decisions {path} cannot be written: {error.strerror}") from error


def _plot(path: Path) -> Callable[[str, Sequence[SimulatedDeployment]], None]:
    """A function that writes the picture there."""
    from hotplate.platform.commands.simulation_plot import drawn, form

    write = form(path)

    def plot(name: str, fleets: Sequence[SimulatedDeployment]) -> None:
        try:
            path.write_bytes(write(drawn(name, fleets)))
        except OSError as error:
            raise BadSetting(f"--plot {path} cannot be written: {error.strerror}") from error

    return plot


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
    Console(highlight=False, width=WIDTH).print(table)
