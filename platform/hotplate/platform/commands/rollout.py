"""`hotplate rollout`: how a deployment's last roll-out stands, those before, and what to do."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from rich.console import Console

from hotplate.platform.commands.api_client import ApiClient, add_platform_flags
from hotplate.platform.commands.tables import print_json, print_table
from hotplate.platform.errors import BadSetting

USAGE = (
    "hotplate rollout NAME | rollout history NAME | rollout undo NAME [--to N] | "
    "rollout restart|pause|resume|abort NAME | rollout promote NAME VERSION"
)
ACTIONS = ("undo", "restart", "pause", "resume", "abort")
VERSIONS = ("version", "revision", "bento", "weight", "share", "wanted", "ready", "answers")
HISTORY = ("number", "created", "by", "bento", "outcome", "serving", "reason")
PAGE = 1000
"""As many revisions as a page of the API may have."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.usage = USAGE
    parser.add_argument("words", nargs="+", metavar="NAME", help="the deployment")
    parser.add_argument("--to", type=int, metavar="N", help="undo: the revision to return to")
    parser.add_argument("--json", action="store_true", help="print what the API answers")
    add_platform_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Ask the platform and print. Raises `Unreachable`, `NotFound` or `BadSetting`."""
    ask, words = ApiClient.of(arguments), arguments.words
    if arguments.to is not None and words[0] != "undo":
        raise BadSetting("--to is for undo: hotplate rollout undo NAME --to N")
    history = False
    match words:
        case ["history", name]:
            history = True
            answer = ask(f"{_path(name)}/revisions?count={PAGE}")
        case ["promote", name, version]:
            content = {"action": "promote", "version": version}
            answer = ask.call("POST", f"{_path(name)}/rollout", content)
        case [action, name] if action in ACTIONS:
            content = {"action": action}
            if arguments.to is not None:
                content["to"] = arguments.to
            answer = ask.call("POST", f"{_path(name)}/rollout", content)
        case [name]:
            answer = ask(f"{_path(name)}/rollout")
        case _:
            raise BadSetting(f"rollout {' '.join(words)}: write {USAGE}")
    if arguments.json:
        print_json(answer)
    elif history:
        show_history(answer["items"])
    else:
        show_rollout(Console(highlight=False, soft_wrap=True), answer)
        if len(words) == 1:
            print()
            show_history(ask(f"{_path(words[0])}/revisions?count={PAGE}")["items"])
    return 0


def show_rollout(console: Console, rollout: Mapping[str, Any]) -> None:
    """A sentence on where it stands, and a row for each version."""
    before = rollout["from"]
    way = f"{before} → {rollout['to']}" if before is not None else str(rollout["to"])
    console.print(f"revision {way}, strategy {rollout['strategy']}: {rollout['phase']}")
    console.print(f"  {rollout['reason']}", markup=False)
    if rollout["versions"]:
        print_table(VERSIONS, map(_version_cells, rollout["versions"]))


def show_history(revisions: Sequence[Mapping[str, Any]]) -> None:
    """A row each, the newest first."""
    print_table(
        HISTORY,
        (
            (
                str(one["number"]),
                one["created_at"][:19].replace("T", " "),
                one["by"],
                one["bento"],
                one["outcome"],
                "yes" if one["serving"] else "",
                one["reason"],
            )
            for one in revisions
        ),
    )


def _version_cells(version: Mapping[str, Any]) -> Sequence[str]:
    answers = ", ".join(f"{count} {kind}" for kind, count in version["answers"].items() if count)
    return (
        version["version"],
        str(version["revision"]),
        version["bento"],
        f"{version['weight']:g} %",
        f"{version['share']:.0%}",
        str(version["wanted"]),
        str(version["ready"]),
        answers or "none",
    )


def _path(name: str) -> str:
    return f"/deployments/{quote(name, safe='')}"
