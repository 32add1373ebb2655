"""`hotplate user`: the members of an organization, and the installation's operators."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from hotplate.platform.commands.api_client import ApiClient, add_platform_flags
from hotplate.platform.commands.tables import print_json, print_table
from hotplate.platform.errors import BadSetting

USAGE = (
    "hotplate user | user add NAME --email EMAIL --role ROLE | user set NAME --role ROLE | "
    "user remove NAME | user link NAME | user operator NAME on|off"
)
COLUMNS = ("name", "email", "role", "operator", "last seen")
API = "/api/v1"


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.usage = USAGE
    parser.add_argument("words", nargs="*", metavar="NAME", help="one member (all)")
    parser.add_argument("--email", help="of the member")
    parser.add_argument("--role", help="admin, developer or endpoint-user")
    parser.add_argument("--json", action="store_true", help="print what the API answers")
    add_platform_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Ask the platform and print. Raises `Unreachable`, `NotFound` or `BadSetting`."""
    ask, words = ApiClient.of(arguments), arguments.words
    match words:
        case []:
            answer = ask(_members(arguments, ask))
            shown = answer["items"]
        case ["add", name]:
            if not arguments.email or not arguments.role:
                raise BadSetting(f"user add {name} needs --email and --role: write {USAGE}")
            answer = ask.put(_members(arguments, ask, name), _changes(arguments))
            link = ask.call("POST", f"/users/{quote(name, safe='')}/link", {})
            answer, shown = answer | link, []
        case ["set", name]:
            if not (changes := _changes(arguments)):
                raise BadSetting(f"user set {name} changes nothing: give --role or --email")
            path = _members(arguments, ask, name)
            ask(path)  # which says that nobody of that name is a member
            answer = ask.put(path, changes)
            shown = [answer]
        case ["remove", name]:
            answer = ask.call("DELETE", _members(arguments, ask, name))
            shown = []
        case ["link", name]:
            answer = ask.call("POST", f"/users/{quote(name, safe='')}/link", {})
            shown = []
        case ["operator", name, ("on" | "off") as state]:
            path = f"/users/{quote(name, safe='')}/operator"
            answer = ask.put(path, {"operator": state == "on"})
            shown = []
        case [name] if name not in ("add", "set", "remove", "link", "operator"):
            answer = ask(_members(arguments, ask, name))
            shown = [answer]
        case _:
            raise BadSetting(f"user {' '.join(words)}: write {USAGE}")
    _show(arguments, answer, shown)
    return 0


def _show(
    arguments: argparse.Namespace, answer: Mapping[str, Any], shown: Sequence[Mapping[str, Any]]
) -> None:
    words = arguments.words
    if arguments.json:
        print_json(answer)
    elif "url" in answer:
        print(answer["url"])
    elif words[:1] == ["remove"]:
        print(f"{words[1]} is no longer a member")
    elif words[:1] == ["operator"]:
        print(f"{words[1]} is {'now' if answer['operator'] else 'no longer'} an operator")
    else:
        print_table(COLUMNS, map(_row, shown))


def _row(member: Mapping[str, Any]) -> tuple[str, ...]:
    seen = member["last_seen_at"] or "never"
    operator = "yes" if member["operator"] else ""
    return member["name"], member["email"], member["role"], operator, seen[:16].replace("T", " ")


def _changes(arguments: argparse.Namespace) -> dict[str, str]:
    given = {"email": arguments.email, "role": arguments.role}
    return {name: value for name, value in given.items() if value is not None}


def _members(arguments: argparse.Namespace, ask: ApiClient, name: str = "") -> str:
    """The path of the members of the organization that the caller acts for."""
    organization = arguments.organization or ask.call("GET", "/current_org", root=API)["name"]
    path = f"/organizations/{quote(organization, safe='')}/members"
    return f"{path}/{quote(name, safe='')}" if name else path
