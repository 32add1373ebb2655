"""`hotplate up`: the whole platform on this machine."""

from __future__ import annotations

import argparse
import asyncio
import os

from rich.console import Console

from hotplate.platform.commands import flags, secret_flags
from hotplate.platform.instance_type import load_instance_types
from hotplate.platform.processes.data_dir import DataDir
from hotplate.platform.processes.ports import reachable
from hotplate.platform.processes.supervisor import Supervisor
from hotplate.platform.processes.terminal import Terminal


def add_flags(parser: argparse.ArgumentParser) -> None:
    flags.add_platform(parser)
    parser.add_argument(
        "--control-planes",
        type=int,
        metavar="N",
        help="how many control planes there are, 1 or 2: one acts, the other takes over (1)",
    )
    parser.add_argument(
        "--admin-token-file",
        help="file with the token to log in with (DATA/admin-token, made at first start)",
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="print every line that the roles log, not only events",
    )
    parser.add_argument("--admin-token", default="", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> None:
    """Run until SIGINT or SIGTERM. Raises `AlreadyRunning`, BadSetting, `CannotStart`."""
    data = DataDir.at(arguments.data)
    lock = data.lock()
    try:
        data.make_private()
        settings = flags.platform_settings(data.settings_file, arguments)
        flags.gateway_limits(data.settings_file)
        # A mistake is reported here, and not in a role's log.
        flags.standby_settings(data.settings_file)
        load_instance_types(data.settings_file)
        data.secret("cluster-token")
        data.secret("metrics-token")
        named = arguments.admin_token_file
        given = secret_flags.read(named, "--admin-token-file") if named else arguments.admin_token
        data.secret("admin-token", given)
        data.note("endpoint", {"url": f"http://{reachable(settings.host)}:{settings.port}"})
        terminal = Terminal(Console(highlight=False), verbose=arguments.verbose)
        asyncio.run(Supervisor(settings, data, terminal).run())
    finally:
        os.close(lock)
