"""`hotplate events`: what happened to a deployment, or to all of them and to the platform."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console
from rich.markup import escape

from hotplate.deploy.process.printable import printable
from hotplate.platform.commands.api_client import ApiClient, add_platform_flags
from hotplate.platform.commands.following import Shown, look_again
from hotplate.platform.commands.pages.deployment import moment
from hotplate.platform.errors import Unreachable
from hotplate.platform.log_lines import fresh
from hotplate.platform.processes.data_dir import DataDir


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="one deployment (all)")
    parser.add_argument("--lines", type=int, default=100, help="number of events to show (100)")
    parser.add_argument("-f", "--follow", action="store_true", help="also show new events")
    add_platform_flags(parser)


def run(arguments: argparse.Namespace) -> None:
    """Raises `Unreachable` or `NotFound`."""
    ask, console = ApiClient.of(arguments), Console(highlight=False, soft_wrap=True)
    where = f"/deployments/{arguments.name}" if arguments.name else ""

    def look(before: Shown) -> Shown:
        try:
            found = ask(f"{where}/events?count={arguments.lines}")
        except Unreachable as error:
            if arguments.name or arguments.endpoint:
                raise
            found = platform_events(DataDir.named(arguments.data), arguments.lines)
            console.print(f"[red]{escape(str(error))}[/] The platform's own events are:")
        lines = [event_line(event, named=bool(arguments.name)) for event in reversed(found)]
        for line in fresh(before.get("", []), lines):
            console.print(line)
        return {"": lines}

    look_again(look, follow=arguments.follow)


def platform_events(data: DataDir, count: int) -> list[dict[str, Any]]:
    """The platform's own events as its API has them, read from the data directory."""
    return [vars(event) | {"at": event.at.isoformat()} for event in data.events.events(count)]


def event_line(event: dict[str, Any], *, named: bool) -> str:
    """One event: its time, its deployment (where that was not `named`), its kind, its sentence."""
    of = "" if named else f"{event['deployment'] or 'platform':16} "
    return f"{moment(event['at'])}  {of}{event['kind']:16} {escape(printable(event['message']))}"
