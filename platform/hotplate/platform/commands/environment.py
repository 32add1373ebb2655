"""`hotplate environment`: the Python environments of bentos."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from rich.filesize import decimal

from hotplate.platform.commands.api_client import ApiClient, add_platform_flags
from hotplate.platform.commands.tables import print_json, print_table

COLUMNS = ("environment", "organization", "state", "size", "built", "took", "used by")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print what the API answers")
    add_platform_flags(parser)


def run(arguments: argparse.Namespace) -> None:
    """Ask the platform and print. Raises `Unreachable`."""
    answer = ApiClient.of(arguments)("/environments")
    if arguments.json:
        print_json(answer)
    else:
        print_table(COLUMNS, map(_row, answer["items"]))


def _row(one: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        one["digest"][:12],
        one["organization"] or "(all)",
        one["state"],
        decimal(one["size_bytes"]),
        (one["built_at"] or "")[:16].replace("T", " "),
        "" if one["build_s"] is None else f"{one['build_s']:.0f} s",
        ", ".join(one["used_by"]),
    )
