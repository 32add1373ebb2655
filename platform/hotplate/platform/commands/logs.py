"""`hotplate logs`: what the replicas of a deployment print."""

from __future__ import annotations

import argparse
import urllib.parse
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from rich.console import Console
from rich.markup import escape

from hotplate.deploy.process.printable import printable
from hotplate.platform.commands.api_client import ApiClient, add_platform_flags
from hotplate.platform.commands.following import Shown, look_again
from hotplate.platform.commands.tables import print_json
from hotplate.platform.log_lines import fresh


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the deployment")
    parser.add_argument("--replica", default="", help="only this replica (all)")
    parser.add_argument(
        "--lines", type=int, default=100, help="number of lines to show per replica (100)"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="also show new lines")
    parser.add_argument(
        "--build", action="store_true", help="show how its environment was built, whole"
    )
    parser.add_argument("--json", action="store_true", help="print what the API answers")
    add_platform_flags(parser)


def run(arguments: argparse.Namespace) -> None:
    """Raises `Unreachable` or `NotFound`."""
    ask, console = ApiClient.of(arguments), Console(highlight=False, soft_wrap=True)
    if arguments.build:
        show_build(ask(f"/deployments/{quote(arguments.name)}/build_log"), as_json=arguments.json)
        return
    query = urllib.parse.urlencode({"replica": arguments.replica, "lines": arguments.lines})

    if arguments.json:
        print_json(ask(f"/deployments/{arguments.name}/logs?{query}"))
        return

    def look(before: Shown) -> Shown:
        logs: Shown = ask(f"/deployments/{arguments.name}/logs?{query}")
        if not logs and not before:
            console.print(f"deployment '{arguments.name}' has no replicas now")
        show_fresh(console, before, logs)
        return logs

    look_again(look, follow=arguments.follow)


def show_build(answer: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the output of a build as it is."""
    if as_json:
        print_json(answer)
    elif answer["log"]:
        for line in answer["log"].splitlines():
            print(printable(line))
    elif answer["digest"]:
        print(f"environment {answer['digest']} was not built on this machine, so it has no output")
    else:
        print("no environment of it has been built, or it was removed since (hotplate gc)")


def show_fresh(console: Console, before: Shown, logs: Shown) -> None:
    """Print the lines of each replica that have come since `before`, under its id."""
    for replica, lines in logs.items():
        come = fresh(before.get(replica, []), lines)
        if come or replica not in before:
            console.print(f"[bold]{escape(printable(replica))}[/]")
        for line in come:
            console.print(f"  {escape(printable(line))}")
