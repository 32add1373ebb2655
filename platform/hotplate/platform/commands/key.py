"""`hotplate key`: the keys that secrets are encrypted with."""

from __future__ import annotations

import argparse

from hotplate.platform.commands.api_client import ApiClient, add_platform_flags
from hotplate.platform.commands.tables import print_json, print_table
from hotplate.platform.errors import BadSetting

USAGE = "hotplate key | hotplate key rotate"
COLUMNS = ("key", "made", "encrypts", "values")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.usage = USAGE
    parser.add_argument(
        "words", nargs="*", metavar="rotate", help="make a key, and encrypt all secrets anew"
    )
    parser.add_argument("--json", action="store_true", help="print what the API answers")
    add_platform_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Ask the platform and print. Raises `Unreachable` or `BadSetting`."""
    ask = ApiClient.of(arguments)
    match arguments.words:
        case []:
            answer = ask("/keys")
        case ["rotate"]:
            answer = ask.call("POST", "/keys/rotate")
        case words:
            raise BadSetting(f"key {' '.join(words)}: write {USAGE}")
    if arguments.json:
        print_json(answer)
    else:
        print_table(
            COLUMNS,
            (
                (
                    key["id"],
                    key["made_at"][:16].replace("T", " "),
                    "yes" if key["encrypts"] else "",
                    str(key["values"]),
                )
                for key in answer["items"]
            ),
        )
    return 0
