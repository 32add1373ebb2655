"""The flags of `hotplate loadtest`: what is asked, and when. Everything raises BadSetting."""

from __future__ import annotations

import argparse
import random
import re
import textwrap
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from hotplate.autoscaler.simulator.arrivals import read as read_trace
from hotplate.machine.nearest import nearest
from hotplate.platform.commands.api_client import add_platform_flags
from hotplate.platform.errors import BadSetting
from hotplate.platform.loadtest.asking import arrivals, organizations, payloads
from hotplate.platform.loadtest.asking.shapes import SHAPES, TRACE
from hotplate.platform.loadtest.asking.target import checked_route
from hotplate.platform.loadtest.plan import Kind

RATE_PER_S = 10.0
DURATION_S = 60.0
LEAST_RATE_PER_S, MOST_RATE_PER_S = 1e-4, 1e6
LEAST_DURATION_S, MOST_DURATION_S = 1.0, 7 * 86400.0
LEAST_SPEED, MOST_SPEED = 1e-3, 1e6
MOST_USERS = 100_000
MOST_PROCESSES = 64
MOST_SEED = 1 << 32
UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([smhd]?)")


@dataclass(frozen=True)
class AskedLoad:
    """The load that the flags describe."""

    shape: str
    rate_per_s: float
    users: int
    """Of a closed loop; 0 = an open loop."""
    duration_s: float | None
    """None = 60 s, or as long as the trace."""
    trace: Path | None
    speed: float
    route: str | None
    kind: Kind | None
    """None = as the schema says."""
    bodies: Sequence[bytes]
    """Empty = to be made from the schema."""
    organizations: Mapping[str, int]
    """The weight of each; empty = the header is not sent."""
    processes: int
    seed: int

    def arrivals(self, deployment: str) -> tuple[array[float], float]:
        """When each request is due (of a closed loop: when each user begins), and for how long is
        asked; seconds.

        `deployment` is the one whose requests of a trace are meant; "" = that is not known. Raises
        TraceInvalid too.
        """
        rng = random.Random(self.seed)
        if self.trace is not None:
            found = read_trace([self.trace], rng)
            return arrivals.of_trace(found, deployment, self.speed, self.duration_s)
        duration_s = DURATION_S if self.duration_s is None else self.duration_s
        shape = SHAPES[self.shape]
        if self.users:
            return arrivals.beginnings(shape, self.users, duration_s), duration_s
        due_s = arrivals.poisson(shape, self.rate_per_s, duration_s, rng)
        if not due_s:
            raise BadSetting(
                f"no request would be sent: at {self.rate_per_s:g} requests/s none is due within "
                f"{duration_s:g} s; raise --rate or --duration"
            )
        return due_s, duration_s


def add_flags(parser: argparse.ArgumentParser) -> None:
    several: dict[str, Any] = {"nargs": "+", "action": "extend"}
    parser.add_argument("target", metavar="TARGET", nargs="?", help="a deployment's name, or a URL")
    parser.add_argument(
        "--shape", metavar="SHAPE", help=f"{'|'.join((*SHAPES, TRACE))}; see below (constant)"
    )
    parser.add_argument(
        "--rate",
        metavar="R",
        help="open loop: requests/s at the shape's peak, however slow the answers are (10)",
    )
    parser.add_argument(
        "--users", metavar="N", help="closed loop: users who ask again once they are answered"
    )
    parser.add_argument("--duration", metavar="TIME", help="60, 60s, 5m or 1h (60s)")
    parser.add_argument("--route", metavar="/PATH", help="the method's path (the only method's)")
    parser.add_argument(
        "--payload",
        metavar="FILE|JSON",
        help="the body; of a file with JSON in each line, each in turn; @PATH in a field is a file "
        "(made from /schema.json)",
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--stream", action="store_true", help="measure each event (as the schema says)"
    )
    kind.add_argument(
        "--task",
        action="store_true",
        help="submit a task, wait for it and fetch its result (as the schema says)",
    )
    parser.add_argument("--trace", metavar="FILE", help="CSV of requests, as for `simulate`")
    parser.add_argument("--speed", metavar="X", help="how many times as fast the trace goes (1)")
    parser.add_argument(
        "--organizations",
        metavar="NAME=W,…",
        help="who asks and how often, in the deployment's organization header: acme=3,beta=1",
    )
    parser.add_argument("--processes", metavar="N", help="processes that ask (1)")
    parser.add_argument("--seed", metavar="N", help="seed of arrivals and payloads (0)")
    parser.add_argument("--report", metavar="DIR", help="new folder for the report")
    parser.add_argument(
        "--fail-if",
        **several,
        metavar="EXPR",
        help="exit with 3 if one holds: 'p95_s > 1.5' 'failed > 0'",
    )
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    parser.add_argument("--predict", action="store_true", help="first simulate what would happen")
    parser.add_argument(
        "--compare", nargs=2, metavar=("A", "B"), help="two reports beside each other; no TARGET"
    )
    parser.add_argument(
        "--endpoint-token-file",
        metavar="FILE",
        help="file with the token that callers of the deployment send",
    )
    add_platform_flags(parser)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _shapes_text()


def _shapes_text() -> str:
    """A sentence for each shape."""
    lines = ["shapes, of a peak R; arrivals of an open loop are those of a Poisson process:"]
    for name, shape in SHAPES.items():
        users = "; also of --users" if shape.growing else ""
        lines.append(
            textwrap.fill(
                f"{name}: {shape.text}{users}", initial_indent="  ", subsequent_indent="    "
            )
        )
    return "\n".join([*lines, f"  {TRACE}: requests arrive as in --trace, from its first on"])


def asked_load(arguments: argparse.Namespace) -> AskedLoad:
    """Checked, and the payloads read."""
    trace = arguments.trace
    shape = arguments.shape
    if shape is None:
        shape = "constant" if trace is None else TRACE
    _check_combination(arguments, shape)
    rate, users, speed = arguments.rate, arguments.users, arguments.speed
    seed, processes = arguments.seed, arguments.processes
    return AskedLoad(
        shape=shape,
        rate_per_s=RATE_PER_S
        if rate is None
        else _number("--rate", rate, LEAST_RATE_PER_S, MOST_RATE_PER_S, " requests/s"),
        users=0 if users is None else _whole("--users", users, 1, MOST_USERS),
        duration_s=None if arguments.duration is None else duration_of(arguments.duration),
        trace=None if trace is None else Path(trace).expanduser(),
        speed=1.0 if speed is None else _number("--speed", speed, LEAST_SPEED, MOST_SPEED),
        route=None if arguments.route is None else checked_route(arguments.route),
        kind="stream" if arguments.stream else "task" if arguments.task else None,
        bodies=() if arguments.payload is None else payloads.given(arguments.payload),
        organizations={}
        if arguments.organizations is None
        else organizations.parse(arguments.organizations),
        processes=1 if processes is None else _whole("--processes", processes, 1, MOST_PROCESSES),
        seed=0 if seed is None else _whole("--seed", seed, 0, MOST_SEED),
    )


def _check_combination(arguments: argparse.Namespace, shape: str) -> None:
    """Of flags that exclude each other."""
    names = (*SHAPES, TRACE)
    if shape not in names:
        near = nearest(shape.lower(), names, likeness=0.4)
        hint = f"; did you mean {near}?" if near else ""
        raise BadSetting(f"--shape {shape} is not one of {', '.join(names)}{hint}")
    if arguments.rate is not None and arguments.users is not None:
        raise BadSetting(
            "--rate and --users exclude each other: a rate is asked however slow the answers are, "
            "and users ask when they are answered"
        )
    if (shape == TRACE) != (arguments.trace is not None):
        raise BadSetting(
            "--shape trace needs --trace FILE, the file of its requests"
            if shape == TRACE
            else f"--trace has its own shape: leave --shape {shape} out"
        )
    if shape == TRACE and (arguments.rate is not None or arguments.users is not None):
        raise BadSetting(
            "--trace says itself when requests arrive: leave --rate and --users out, and change "
            "its rate by --speed"
        )
    if arguments.task and "?" in (arguments.route or ""):
        raise BadSetting(
            f"--route {arguments.route} has a query, which a task's calls have of their own: leave "
            "it out"
        )
    if shape != TRACE and arguments.speed is not None:
        raise BadSetting("--speed is that of a trace: give --trace FILE, or --rate")
    if arguments.users is not None and arguments.predict:
        raise BadSetting(
            "--predict needs to know when requests arrive, and those of --users follow the "
            "answers: give --rate or --trace"
        )
    if arguments.users is not None and not SHAPES[shape].growing:
        follow = ", ".join(name for name, each in SHAPES.items() if each.growing)
        raise BadSetting(
            f"--users cannot follow --shape {shape}, because a user who has begun goes on: give "
            f"--rate, or one of {follow}"
        )


def duration_of(text: str) -> float:
    """Seconds."""
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found[1]) * UNITS_S[found[2]] if found else 0.0
    if not LEAST_DURATION_S <= seconds <= MOST_DURATION_S:
        raise BadSetting(
            f"--duration {text} is not a time from {LEAST_DURATION_S:.0f} s to "
            f"{MOST_DURATION_S / 86400:.0f} days: write 60s, 5m or 1h"
        )
    return seconds


def _number(flag: str, value: str, least: float, most: float, unit: str = "") -> float:
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not (isfinite(number) and least <= number <= most):
        raise BadSetting(f"{flag} {value} is not a number from {least:g} to {most:g}{unit}")
    return number


def _whole(flag: str, value: str, least: int, most: int) -> int:
    number = int(value) if re.fullmatch(r"[0-9]{1,20}", value) else least - 1
    if not least <= number <= most:
        raise BadSetting(f"{flag} {value} is not a whole number from {least} to {most}")
    return number
