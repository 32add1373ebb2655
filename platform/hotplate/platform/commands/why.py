"""`hotplate why`: the decision that was in force at a time, and those that led to it."""

from __future__ import annotations

import argparse
import json
import urllib.parse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.markup import escape

from hotplate.platform.commands.api_client import ApiClient, add_platform_flags
from hotplate.platform.errors import BadSetting

DECISIONS = 1000
"""How many of each service the command looks at: as many as are kept."""

SHOWN = 10
"""Decisions per service: the one in force and those before it."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the deployment")
    parser.add_argument("--at", metavar="TIME", help="14:05 or 2026-01-31T14:05:30 (now)")
    parser.add_argument(
        "--log",
        action="store_true",
        help="all stored demand and decisions, as JSON lines for `simulate`",
    )
    add_platform_flags(parser)


def run(arguments: argparse.Namespace) -> None:
    """Raises `Unreachable`, `NotFound` or BadSetting."""
    ask = ApiClient.of(arguments)
    if arguments.log:
        for entry in ask(f"/deployments/{arguments.name}/log"):
            print(json.dumps(entry))
        return
    now = datetime.now(UTC).astimezone()
    at = moment_of(arguments.at, now) if arguments.at else now
    query = urllib.parse.urlencode({"until": at.isoformat(), "count": DECISIONS})
    decisions = ask(f"/deployments/{arguments.name}/decisions?{query}")
    show_why(Console(highlight=False, soft_wrap=True), arguments.name, decisions, at)


def moment_of(text: str, now: datetime) -> datetime:
    """ISO 8601, or a time of today as `HH:MM[:SS]`, in `now`'s time zone. Raises BadSetting."""
    try:
        today = f"{now.date().isoformat()}T" if len(text) <= len("HH:MM:SS") else ""
        moment = datetime.fromisoformat(today + text)
    except ValueError:
        raise BadSetting(
            f"--at {text} is not a time: write 14:05, 14:05:30 or 2026-01-31T14:05:30"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)


def show_why(
    console: Console, name: str, decisions: Sequence[Mapping[str, Any]], now: datetime
) -> None:
    """`decisions` are the newest first, up to `now`, as the API gives them."""
    if not decisions:
        console.print(f"no decision on {name} is stored from before {_time(now)}")
    by_service = defaultdict(list)
    for one in decisions:
        by_service[one["service"]].append(one)
    for service, (last, *before) in sorted(by_service.items()):
        console.print(
            f"[bold]{name}[/], {service} (revision {last['revision']}): {last['desired']} desired "
            f"since {_time(datetime.fromisoformat(last['at']).astimezone(now.tzinfo))}"
        )
        console.print(f"  {escape(last['reason'])}")
        console.print(f"  there were {last['replicas']}, with {_inputs(last)}")
        if sentence := (last.get("inputs") or {}).get("slots"):
            console.print(f"  a replica had {escape(sentence)}")
        for one in before[: SHOWN - 1]:
            at = _time(datetime.fromisoformat(one["at"]).astimezone(now.tzinfo))
            change = f"{one['replicas']} → {one['desired']}"
            console.print(f"    before, {at}: {change}  {escape(one['reason'])}")


def _inputs(decision: Mapping[str, Any]) -> str:
    """The figures it was made from; an old decision has kept their sum only."""
    inputs = decision.get("inputs")
    if not inputs:
        return f"{decision['demand']} in flight or queued"
    sentence = f"{inputs['in_flight']} in flight, {inputs['queued']} queued"
    if inputs["service_s"]:
        sentence += f", {inputs['service_s']:.3g} s each"
    return sentence + (f"; {inputs['starting']} starting" if inputs["starting"] else "")


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S")
