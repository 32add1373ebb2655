"""`hotplate status`: the deployments and the platform, or one deployment with all that it has."""

from __future__ import annotations

import argparse

from hotplate.platform.commands.api_client import ApiClient, add_platform_flags
from hotplate.platform.commands.pages.deployment import show_all, show_deployment
from hotplate.platform.commands.pages.installation import show_platform, show_what_is_left
from hotplate.platform.commands.pages.printing import page_console
from hotplate.platform.errors import Unreachable
from hotplate.platform.processes.data_dir import DataDir


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="one deployment (all)")
    add_platform_flags(parser)


def run(arguments: argparse.Namespace) -> None:
    """Raises `Unreachable` or `NotFound`."""
    ask, console = ApiClient.of(arguments), page_console()
    if arguments.name:
        cold_starts = ask(f"/deployments/{arguments.name}/cold_starts?count=1")
        show_deployment(console, ask(f"/deployments/{arguments.name}"), cold_starts)
        return
    try:
        show_all(console, ask("/deployments"))
        show_platform(console, ask("/platform"))
    except Unreachable:
        if not arguments.endpoint:
            show_what_is_left(console, DataDir.named(arguments.data))
        raise
