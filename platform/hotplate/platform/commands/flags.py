"""Flags that several commands have, and the values of flags as the processes want them.

Everything here raises BadSetting with one sentence.
"""

from __future__ import annotations

import argparse
import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from hotplate.machine.address import Address
from hotplate.platform.errors import BadSetting
from hotplate.platform.processes.data_dir import DEFAULT, DataDir
from hotplate.platform.settings import PlatformSettings, load

if TYPE_CHECKING:
    from hotplate.deploy.standbys import StandbySettings
    from hotplate.serving.gateway.limits import Limits


def add_platform(parser: argparse.ArgumentParser) -> None:
    """The flags of a command that is the platform: where it listens and keeps its data."""
    parser.add_argument("--host", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, help="port of the API (7070)")
    parser.add_argument("--data", default=DEFAULT, help=f"data directory ({DEFAULT})")


def add_data(parser: argparse.ArgumentParser) -> None:
    """Where a platform is that a command looks at by itself."""
    parser.add_argument("--data", default=DEFAULT, help=f"data directory of `up` ({DEFAULT})")
    add_settings(parser)


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--settings", metavar="FILE", help="settings file (hotplate.toml in the data directory)"
    )


def settings_file(data: DataDir, named: str | None) -> Path:
    """The file that `--settings` names, or that of the data directory, which need not be there.
    Raises BadSetting."""
    if named is None:
        return data.settings_file
    if not Path(named).is_file():
        raise BadSetting(f"--settings {named} is no file")
    return Path(named)


def add_metrics_token(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metrics-token-file",
        metavar="FILE|no",
        help="file with a token for /metrics in addition to the cluster's; no: no token is needed",
    )


def platform_settings(file: Path, arguments: argparse.Namespace | None = None) -> PlatformSettings:
    """By the flags of `add_platform` (None = none are given), environment and file."""
    names = ("host", "port", "control_planes")
    given = {name: getattr(arguments, name, None) for name in names}
    return load(PlatformSettings, "platform", flags=given, environ=os.environ, file=file)


def standby_settings(file: Path) -> StandbySettings:
    from hotplate.deploy.standbys import StandbySettings

    return load(StandbySettings, "standby", flags={}, environ=os.environ, file=file)


def gateway_limits(file: Path, hosts: str = "") -> Limits:
    """By `hosts` (a flag), environment and the file's table `[gateway]`; every number above 0."""
    from hotplate.serving.gateway.limits import Limits

    given = {"hosts": hosts_of(hosts) or None}
    limits = load(Limits, "gateway", flags=given, environ=os.environ, file=file)
    for name, value in asdict(limits).items():  # compiled, they have no `__dict__`
        if not isinstance(value, tuple) and not 0 < value < math.inf:
            raise BadSetting(f"gateway.{name}: {value} is not a finite number above 0")
    return limits


def peers_of(text: str) -> tuple[str, ...]:
    peers = tuple(filter(None, (one.strip() for one in text.split(","))))
    for peer in peers:
        if not is_address(peer):
            raise BadSetting(f"--peers {peer} is not an address: write HOST:PORT,HOST:PORT,…")
    return peers


def hosts_of(text: str) -> tuple[str, ...]:
    from hotplate.machine.access.own_hosts import is_host

    hosts = tuple(filter(None, (one.strip() for one in text.split(","))))
    for host in hosts:
        if not is_host(host):
            raise BadSetting(f"--hosts {host} is not a host name or address: write NAME,NAME,…")
    return hosts


def is_address(text: str, *, any_port: bool = False) -> bool:
    """Whether it is HOST:PORT; port 0 counts where it means any that is free."""
    try:
        return Address.parse(text).port >= (0 if any_port else 1)
    except ValueError:
        return False


def mount_of(arguments: argparse.Namespace) -> Path | None:
    from hotplate.cache.file_view.view_folders import default_mount

    if arguments.mount == "no":
        return None
    if arguments.mount:
        return Path(arguments.mount).resolve()
    return default_mount(DataDir.at(arguments.data).root)


def seconds_of(flag: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise BadSetting(f"{flag} {text} is not a number of seconds from 0 on")
    return seconds


def size_of(flag: str, text: str) -> int:
    from hotplate.machine.sizes import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise BadSetting(f"{flag} {error}") from error
