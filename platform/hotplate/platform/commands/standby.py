"""`hotplate standby`: warm processes that become or fork replicas, and how many there may be."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape

from hotplate.platform.commands.api_client import ApiClient, add_platform_flags
from hotplate.platform.errors import BadSetting

FLAGS = ("memory_share", "unused_s", "min_starts", "calm_s")
"""Flags of `hotplate standby set`, each named like its setting."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=["set"], help="change how many standbys are kept"
    )
    parser.add_argument(
        "how", nargs="?", help="off, automatic, a number per environment, or default: as configured"
    )
    parser.add_argument(
        "--memory-share", type=float, metavar="X", help="share of the memory for standbys, 0 to 1"
    )
    parser.add_argument(
        "--unused-s",
        type=float,
        metavar="S",
        help="how long standbys are kept after the last start",
    )
    parser.add_argument(
        "--min-starts",
        type=int,
        metavar="N",
        help="least starts in 7 days for an environment to have any",
    )
    parser.add_argument(
        "--calm-s",
        type=float,
        metavar="S",
        help="pause between the last start and making a standby",
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    add_platform_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Ask the platform, or tell it, and print what holds now.

    Raises BadSetting, `Unreachable` and `NotFound`.
    """
    ask = ApiClient.of(arguments)
    path = "/standby"
    settings = settings_of(arguments)
    shown = ask.put(path, {"settings": settings}) if arguments.action else ask(path)
    if arguments.json:
        print(json.dumps(shown))
    else:
        show_standbys(Console(highlight=False, soft_wrap=True), shown)
    return 0


def settings_of(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """The settings that `set` asks for; None = back to file and environment, or there is no `set`.

    Raises BadSetting.
    """
    flags = {name: getattr(arguments, name) for name in FLAGS}
    settings = {name: value for name, value in flags.items() if value is not None}
    how = arguments.how
    if not arguments.action:
        if settings:
            raise BadSetting(
                "standby only shows the standbys: change them with hotplate standby set …"
            )
        return None
    for name, value in settings.items():
        if not math.isfinite(value):
            raise BadSetting(
                f"standby set --{name.replace('_', '-')} {value} is not a finite number"
            )
    if how == "default":
        if settings:
            raise BadSetting("standby set default takes no flags: it removes all that was set")
        return None
    if how is None and not settings:
        raise BadSetting("standby set: write off, automatic, a number, or default")
    if how in ("off", "automatic"):
        settings["mode"] = how
    elif how is not None:
        if not (how.isascii() and how.isdigit()):
            raise BadSetting(
                f"standby set {how}: write off, automatic, a number per environment, or default"
            )
        settings |= {"mode": "fixed", "count": int(how)}
    return settings


def show_standbys(console: Console, shown: Mapping[str, Any]) -> None:
    """Print the response of `/standby` for people."""
    settings = shown["settings"]
    console.print(
        f"[bold]{escape(mode_sentence(settings))}[/]; {decimal(shown['memory_bytes'])} of "
        f"{decimal(shown['budget_bytes'])} taken ({settings['memory_share']:.0%} of the memory)"
    )
    for pool in shown["pools"]:
        where = f"GPU {', '.join(map(str, pool['gpus']))}" if pool["gpus"] else "CPU"
        whose = f" of {named}" if (named := pool.get("organization")) else ""
        making = f" and {pool['making']} on the way" if pool["making"] else ""
        misses = pool["starts"] - pool["hits"]
        console.print(
            f"\nenvironment [bold]{pool['environment'][:12]}[/]{escape(whose)} on {where}: "
            f"{pool['ready']} ready{making}, {decimal(pool['memory_bytes'])}"
        )
        console.print(f"  {escape(pool['reason'])}")
        if pool["templates"]:
            console.print(f"  its template has forked {pool['forks']} replicas")
        elif pool["unforkable"] and settings["mode"] == "automatic":
            console.print(f"  no template: {escape(pool['unforkable'])}")
        console.print(
            f"  {pool['hits']} of {pool['starts']} starts in 7 days had one, {misses} had none; "
            f"one is warm {pool['refill_s']:.1f} s after it was begun"
        )
    if not shown["pools"]:
        console.print("no replica has started yet, so there is no standby to keep ready")


def mode_sentence(settings: Mapping[str, Any]) -> str:
    """`standbys: automatic, from 2 starts on, for 30 min after the last`."""
    if settings["mode"] == "off":
        return "standbys: off"
    if settings["mode"] == "fixed":
        return f"standbys: {settings['count']} per environment"
    return (
        f"standbys: automatic, from {settings['min_starts']} starts on, "
        f"for {settings['unused_s'] / 60:g} min after the last"
    )
