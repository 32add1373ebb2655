"""The values of flags, as the processes want them. All raise BadSetting, one sentence."""

from __future__ import annotations

import argparse
from pathlib import Path

from hotplate.platform.errors import BadSetting
from hotplate.platform.processes.data_dir import DataDir

LAST_PORT = 65535


def peers_of(text: str) -> tuple[str, ...]:
    peers = tuple(filter(None, (one.strip() for one in text.split(","))))
    for peer in peers:
        if not is_address(peer):
            raise BadSetting(f"--peers {peer} is no HOST:PORT: write HOST:PORT,HOST:PORT,…")
    return peers


def hosts_of(text: str) -> tuple[str, ...]:
    from hotplate.machine.access.own_hosts import is_host

    hosts = tuple(filter(None, (one.strip() for one in text.split(","))))
    for host in hosts:
        if not is_host(host):
            raise BadSetting(f"--hosts {host} is no name or address: write NAME,NAME,…")
    return hosts


def is_address(text: str) -> bool:
    """Whether it is HOST:PORT."""
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and 0 < int(port) <= LAST_PORT


def mount_of(arguments: argparse.Namespace) -> Path | None:
    from hotplate.cache.file_view.agent_side import default_mount

    if arguments.mount == "no":
        return None
    if arguments.mount:
        return Path(arguments.mount).resolve()
    return default_mount(DataDir.at(arguments.data).root)


def size_of(flag: str, text: str) -> int:
    from hotplate.machine.sizes import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise BadSetting(f"{flag} {error}") from error
