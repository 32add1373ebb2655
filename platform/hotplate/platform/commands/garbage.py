"""`hotplate gc`: removes what nobody wants from the blob store and this node."""

from __future__ import annotations

import argparse

from rich.filesize import decimal

from hotplate.platform.commands.api_client import ApiClient, add_platform_flags
from hotplate.platform.commands.tables import print_json

LIMIT_S = 3600
"""A large bucket takes some time."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run", action="store_true", help="only say what would be removed, and remove nothing"
    )
    parser.add_argument("--json", action="store_true", help="print what the API answers")
    add_platform_flags(parser)


def run(arguments: argparse.Namespace) -> None:
    """Ask the platform and print. Raises `Unreachable`."""
    content = {"dry_run": arguments.dry_run}
    answer = ApiClient.of(arguments).call("POST", "/gc", content, timeout_s=LIMIT_S)
    if arguments.json:
        print_json(answer)
        return
    done = "would be removed" if arguments.dry_run else "are removed"
    print(
        f"{answer['manifests']} manifests, {answer['blobs']} blobs and "
        f"{answer['environments']} environments ({decimal(answer['bytes'])}) {done}"
    )
