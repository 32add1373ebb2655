"""`hotplate token`: tokens of an organization and of its members."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from hotplate.platform.commands.api_client import ApiClient, add_platform_flags
from hotplate.platform.commands.tables import print_json, print_table
from hotplate.platform.errors import BadSetting

USAGE = (
    "hotplate token | token create NAME [--scope S …] [--expires 30d|DATE] [--service --role ROLE] "
    "| token revoke UID"
)
COLUMNS = ("uid", "name", "owner", "scopes", "expires", "last used")
ROOT = "/api/v1/api_tokens"
PAGE = 1000
_SPAN = re.compile(r"([1-9][0-9]{0,5})([hdw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.usage = USAGE
    parser.add_argument("words", nargs="*", metavar="NAME", help="of the token to make")
    parser.add_argument(
        "--scope", action="append", metavar="S", help="what it is for: api (default), endpoint, …"
    )
    parser.add_argument("--expires", metavar="WHEN", help="30d, 12h, 4w, or a date")
    parser.add_argument("--description", metavar="TEXT", help="what it is for, in words")
    parser.add_argument(
        "--service", action="store_true", help="make it the organization's own, with a --role"
    )
    parser.add_argument("--role", help="admin, developer or endpoint-user")
    parser.add_argument("--json", action="store_true", help="print what the API answers")
    add_platform_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Ask the platform and print. Raises `Unreachable`, `NotFound` or `BadSetting`."""
    ask, words = ApiClient.of(arguments), arguments.words
    match words:
        case []:
            answer = ask.call("GET", f"?start=0&count={PAGE}", root=ROOT)
            if not arguments.json:
                print_table(COLUMNS, map(_row, answer["items"]))
        case ["create", name]:
            answer = ask.call("POST", "", _draft(arguments, name), root=ROOT)
            if not arguments.json:
                print(answer["token"])
        case ["revoke", uid]:
            answer = ask.call("DELETE", f"/{quote(uid, safe='')}", root=ROOT)
            if not arguments.json:
                print(f"token {answer['name']} is revoked")
        case _:
            raise BadSetting(f"token {' '.join(words)}: write {USAGE}")
    if arguments.json:
        print_json(answer)
    return 0


def _draft(arguments: argparse.Namespace, name: str) -> dict[str, Any]:
    draft = {
        "name": name,
        "description": arguments.description or "",
        "scopes": arguments.scope or [],
        "expired_at": expiry(arguments.expires, datetime.now(UTC)) if arguments.expires else None,
    }
    if arguments.service or arguments.role:
        draft |= {"service": arguments.service, "role": arguments.role}
    return draft


def expiry(text: str, now: datetime) -> str:
    """`30d` from now, or a date or time as it was given, in ISO 8601. Raises BadSetting."""
    if span := _SPAN.fullmatch(text):
        ends = now + timedelta(**{_UNITS[span[2]]: int(span[1])})
        return ends.isoformat()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadSetting(
            f"--expires {text} is neither a span, such as 30d, nor a date, such as 2027-01-31"
        ) from None
    return (moment if moment.tzinfo else moment.astimezone()).isoformat()


def _row(token: Mapping[str, Any]) -> tuple[str, ...]:
    owner = token["user"]["name"]
    if token["is_organization_token"]:
        owner = f"{token['organization']['name']} (made by {owner})"
    ends, used = (_moment(token[key], none) for key, none in _MOMENTS)
    if token["is_expired"]:
        ends += " (expired)"
    return token["uid"], token["name"], owner, " ".join(token["scopes"]), ends, used


_MOMENTS = (("expired_at", "never"), ("last_used_at", "never"))


def _moment(value: str | None, none: str) -> str:
    return value[:16].replace("T", " ") if value else none
