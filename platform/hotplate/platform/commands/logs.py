"""`hotplate logs`: what the replicas of a deployment print."""

from __future__ import annotations

import argparse
import urllib.parse

from rich.console import Console
from rich.markup import escape

from hotplate.deploy.process.printable import printable
from hotplate.platform.commands.api_client import ApiClient, add_platform_flags
from hotplate.platform.commands.following import Shown, look_again
from hotplate.platform.log_lines import fresh


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the deployment")
    parser.add_argument("--replica", default="", help="only this replica (all)")
    parser.add_argument(
        "--lines", type=int, default=100, help="number of lines to show per replica (100)"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="also show new lines")
    add_platform_flags(parser)


def run(arguments: argparse.Namespace) -> None:
    """Raises `Unreachable` or `NotFound`."""
    ask, console = ApiClient.of(arguments), Console(highlight=False, soft_wrap=True)
    query = urllib.parse.urlencode({"replica": arguments.replica, "lines": arguments.lines})

    def look(before: Shown) -> Shown:
        logs: Shown = ask(f"/deployments/{arguments.name}/logs?{query}")
        if not logs and not before:
            console.print(f"deployment '{arguments.name}' has no replicas now")
        show_fresh(console, before, logs)
        return logs

    look_again(look, follow=arguments.follow)


def show_fresh(console: Console, before: Shown, logs: Shown) -> None:
    """Print the lines of each replica that have come since `before`, under its id."""
    for replica, lines in logs.items():
        come = fresh(before.get(replica, []), lines)
        if come or replica not in before:
            console.print(f"[bold]{escape(printable(replica))}[/]")
        for line in come:
            console.print(f"  {escape(printable(line))}")
