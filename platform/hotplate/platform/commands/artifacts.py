"""`hotplate bento` and `hotplate model`: the versions that were pushed."""

from __future__ import annotations

import argparse
from urllib.parse import quote

from rich.filesize import decimal

from hotplate.platform.commands.api_client import ApiClient, add_platform_flags
from hotplate.platform.commands.tables import print_json, print_table
from hotplate.platform.errors import BadSetting

ROOT = "/api/v1"
COLUMNS = ("tag", "size", "pushed", "upload")


def add_flags(parser: argparse.ArgumentParser) -> None:
    kind = parser.prog.split()[-1]
    parser.set_defaults(kind=kind)
    parser.usage = f"hotplate {kind} [NAME] | hotplate {kind} delete TAG"
    parser.add_argument("words", nargs="*", metavar="NAME", help="versions of one name (all)")
    parser.add_argument("--json", action="store_true", help="print what the API answers")
    add_platform_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """List or delete. Raises BadSetting, `NotFound`, `Unreachable`."""
    kind, words = arguments.kind, arguments.words
    ask = ApiClient.of(arguments)
    if words[:1] == ["delete"]:
        name, _, version = (words[1] if len(words) == 2 else "").partition(":")
        if not name or not version:
            raise BadSetting(f"{kind} {' '.join(words)}: write hotplate {kind} delete NAME:VERSION")
        path = f"{_versions(kind, name)}/{quote(version, safe='')}"
        answer = ask.call("DELETE", path, root=ROOT)
        if arguments.json:
            print_json(answer)
        else:
            print(f"{kind} {name}:{version} is deleted")
        return 0
    if len(words) > 1:
        raise BadSetting(
            f"{kind} {' '.join(words)}: write hotplate {kind} [NAME], or {kind} delete"
        )
    answer = ask.call("GET", _versions(kind, words[0]) if words else f"/{kind}s", root=ROOT)
    if arguments.json:
        print_json(answer)
        return 0
    rows = (
        (
            f"{one['repository']['name']}:{one['version']}",
            decimal(one["manifest"].get("size_bytes", 0)),
            one["created_at"][:16].replace("T", " "),
            one["upload_status"],
        )
        for one in answer["items"]
    )
    print_table(COLUMNS, rows)
    return 0


def _versions(kind: str, name: str) -> str:
    return f"/{kind}_repositories/{quote(name, safe='')}/{kind}s"
