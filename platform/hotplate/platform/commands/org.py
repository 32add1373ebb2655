"""`hotplate org`: organizations."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from rich.console import Console

from hotplate.platform.commands.api_client import ApiClient, add_platform_flags
from hotplate.platform.commands.tables import print_json, print_table
from hotplate.platform.errors import BadSetting

USAGE = "hotplate org [NAME] | org create NAME [--description TEXT] | org delete NAME [--force]"
COLUMNS = ("name", "members", "deployments", "created", "description")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.usage = USAGE
    parser.add_argument("words", nargs="*", metavar="NAME", help="one organization (all)")
    parser.add_argument("--description", metavar="TEXT", help="of the new organization")
    parser.add_argument("--force", action="store_true", help="delete its deployments too")
    parser.add_argument("--json", action="store_true", help="print what the API answers")
    add_platform_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Ask the platform and print. Raises `Unreachable`, `NotFound` or `BadSetting`."""
    ask, words = ApiClient.of(arguments), arguments.words
    match words:
        case []:
            answer = ask("/organizations")
        case ["create", name]:
            content = {"name": name, "description": arguments.description or ""}
            answer = ask.call("POST", "/organizations", content)
        case ["delete", name]:
            force = "?force=true" if arguments.force else ""
            answer = ask.call("DELETE", f"/organizations/{quote(name, safe='')}{force}")
        case [name] if name not in ("create", "delete"):
            answer = ask(f"/organizations/{quote(name, safe='')}")
        case _:
            raise BadSetting(f"org {' '.join(words)}: write {USAGE}")
    if arguments.json:
        print_json(answer)
    elif words[:1] == ["delete"]:
        Console(highlight=False).print(f"organization {words[1]} is deleted", markup=False)
    else:
        show_organizations(answer["items"] if not words else [answer])
    return 0


def show_organizations(organizations: Sequence[Mapping[str, Any]]) -> None:
    """A row each."""
    print_table(
        COLUMNS,
        (
            (
                one["name"],
                str(one["members"]),
                str(one["deployments"]),
                one["created_at"][:10],
                one["description"],
            )
            for one in organizations
        ),
    )
