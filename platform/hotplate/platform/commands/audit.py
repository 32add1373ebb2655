"""`hotplate audit`: who changed what, and who was refused."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from hotplate.platform.commands.api_client import ApiClient, add_platform_flags
from hotplate.platform.commands.tables import print_json, print_table

COLUMNS = ("id", "at", "actor", "token", "organization", "action", "object", "outcome", "changes")
CHANGES_CHARACTERS = 100
FILTERS = ("since", "until", "actor", "action", "count", "before")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--since", metavar="TIME", help="ISO 8601, UTC without a zone")
    parser.add_argument("--until", metavar="TIME", help="the same")
    parser.add_argument("--actor", metavar="NAME", help="of one user")
    parser.add_argument("--action", help="deployment.update, or all of deployment")
    parser.add_argument("--count", metavar="N", help="how many lines (100)")
    parser.add_argument("--before", metavar="ID", help="lines before that one")
    parser.add_argument("--json", action="store_true", help="print what the API answers")
    add_platform_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Ask the platform and print. Raises `Unreachable`."""
    given = {name: getattr(arguments, name) for name in FILTERS}
    query = urlencode({name: value for name, value in given.items() if value is not None})
    answer = ApiClient.of(arguments)(f"/audit?{query}")
    if arguments.json:
        print_json(answer)
    else:
        print_table(COLUMNS, map(_row, answer["items"]))
    return 0


def _row(line: Mapping[str, Any]) -> tuple[str, ...]:
    times = f" ({line['count']} times)" if line["count"] > 1 else ""
    changes = ", ".join(f"{name}={value}" for name, value in line["changes"].items())
    return (
        str(line["id"]),
        line["at"][:19].replace("T", " "),
        line["actor"] or line["address"],
        line["token"],
        line["organization"],
        line["action"],
        line["object"],
        line["outcome"] + times,
        changes[:CHANGES_CHARACTERS],
    )
