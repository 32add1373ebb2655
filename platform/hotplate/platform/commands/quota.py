"""`hotplate quota`: what organizations have, and what they may have."""

from __future__ import annotations

import argparse
import math
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from hotplate.deploy.quantities import GIB
from hotplate.machine.sizes import parse_size
from hotplate.platform.commands.api_client import ApiClient, add_platform_flags
from hotplate.platform.errors import BadSetting

UNLIMITED = "unlimited"
FLAGS = {
    "replicas": "replicas",
    "gpus": "gpus",
    "cpus": "cpus",
    "memory": "memory_bytes",
    "standby": "standby",
}
"""Flag -> member of `limit`, in the order of the table."""
RANKS = ("weight", "priority")
"""How an organization ranks beside others."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.usage = "hotplate quota [ORGANIZATION] | hotplate quota set ORGANIZATION [--gpus N …]"
    parser.add_argument("words", nargs="*", metavar="ORGANIZATION", help="one organization (all)")
    for flag in ("replicas", "gpus", "cpus", "standby"):
        parser.add_argument(f"--{flag}", metavar="N", help=f"limit on {flag}, or 'unlimited'")
    parser.add_argument("--memory", metavar="SIZE", help="limit on memory, or 'unlimited'")
    parser.add_argument("--weight", metavar="W", help="its weight when resources are scarce (1)")
    parser.add_argument(
        "--priority", metavar="P", help="the highest priority it may use, 0 (first) to 7 (last) (3)"
    )
    add_platform_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Ask the platform and print. Raises `Unreachable`, `NotFound` or `BadSetting`."""
    ask, words = ApiClient.of(arguments), arguments.words
    if words[:1] == ["set"]:
        if len(words) != 2:
            raise BadSetting("quota set needs one ORGANIZATION: hotplate quota set NAME --gpus 4")
        shown = [ask.put(_path(words[1]), _changes(arguments))]
    else:
        if len(words) > 1:
            raise BadSetting(f"quota {' '.join(words)}: write quota [ORGANIZATION], or quota set")
        if _given(arguments):
            raise BadSetting("to set limits, write: hotplate quota set ORGANIZATION --gpus 4 …")
        shown = [ask(_path(words[0]))] if words else ask("/quotas")
    # A row in one line, also where nobody says how wide it may be.
    width = max(Console().width, 120)
    show_quotas(Console(highlight=False, soft_wrap=True, width=width), shown)
    return 0


def show_quotas(console: Console, quotas: Sequence[Mapping[str, Any]]) -> None:
    """A row per organization: used of limit."""
    table = Table(box=None, pad_edge=False)
    for column in ("organization", "weight", "priority", *FLAGS):
        table.add_column(column, justify="left" if column == "organization" else "right")
    for one in quotas:
        cells = [_cell(one["used"].get(name), one["limit"][name]) for name in FLAGS.values()]
        memory = list(FLAGS).index("memory")
        cells[memory] = _cell(
            one["used"]["memory_bytes"] / GIB, _gib(one["limit"]["memory_bytes"]), " GiB"
        )
        table.add_row(one["organization"], f"{one['weight']:g}", str(one["priority"]), *cells)
    console.print(table)


def _cell(used: float | None, limit: float | None, unit: str = "") -> str:
    most = UNLIMITED if limit is None else f"{limit:.4g}{unit}"
    return most if used is None else f"{used:.4g} of {most}"


def _gib(size_bytes: float | None) -> float | None:
    return None if size_bytes is None else size_bytes / GIB


def _path(organization: str) -> str:
    return f"/quotas/{urllib.parse.quote(organization, safe='')}"


def _given(arguments: argparse.Namespace) -> dict[str, str]:
    values = {flag: getattr(arguments, flag) for flag in (*FLAGS, *RANKS)}
    return {flag: value for flag, value in values.items() if value is not None}


def _changes(arguments: argparse.Namespace) -> dict[str, Any]:
    given = _given(arguments)
    if not given:
        flags = ", ".join(f"--{flag}" for flag in (*FLAGS, *RANKS))
        raise BadSetting(f"quota set changes nothing: give at least one of {flags}")
    ranks = {flag: _rank(flag, given.pop(flag)) for flag in RANKS if flag in given}
    return {"limit": {FLAGS[flag]: _limit(flag, text) for flag, text in given.items()}} | ranks


def _limit(flag: str, text: str) -> float | None:
    if text == UNLIMITED:
        return None
    if flag != "memory":
        return _number(flag, text)
    try:
        return parse_size(text)
    except ValueError as error:
        raise BadSetting(f"--memory {error}, or '{UNLIMITED}'") from error


def _rank(flag: str, text: str) -> float:
    if flag == "weight":
        return _number(flag, text)
    if not re.fullmatch("[0-7]", text):
        raise BadSetting(f"--{flag} {text} is not a number from 0 (first) to 7 (last)")
    return int(text)


def _number(flag: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    whole = flag not in ("replicas", "standby") or value.is_integer()
    if not math.isfinite(value) or value < 0 or not whole or (flag == "weight" and not value):
        kind = (
            "a whole number from 0 on" if flag in ("replicas", "standby") else "a number from 0 on"
        )
        kind = "a number above 0" if flag == "weight" else f"{kind}, or '{UNLIMITED}'"
        raise BadSetting(f"--{flag} {text} is not {kind}")
    return value
