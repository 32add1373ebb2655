"""A port of this machine that one replica has to itself; runs in the replica (Python >= 3.9).

A process cannot hold a TCP port for a program that binds it later. So replicas agree among
themselves, by a Unix socket in the abstract namespace: its names belong to the network like ports,
one process can have a name, and it is free again when that process ends in any way. Other programs
take such a port by accident only: it is below the kernel's ephemeral ports.
"""

from __future__ import annotations

import errno
import random
import socket
from contextlib import suppress

_LOWEST = 10_000
_EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"
_LOWEST_GIVEN = 32_768
"""The first ephemeral port of Linux by default."""


class ClaimedPort:
    """A port that is claimed until it is closed, or this process ends."""

    def __init__(self, port: int) -> None:
        """Claims a port. Raises OSError if another replica has claimed it or a program listens
        there."""
        self.port = port
        self._mark = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._mark.bind(f"\0hotplate-command-port-{port}")
            _try(port)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Releases the port."""
        self._mark.close()


def claim_any() -> ClaimedPort:
    """Claims any port that is free. Raises OSError."""
    lowest_given = _LOWEST_GIVEN
    with suppress(OSError), open(_EPHEMERAL) as file:
        lowest_given = int(file.read().split()[0])
    end = lowest_given if lowest_given > 2 * _LOWEST else 1 << 16
    for port in random.sample(range(_LOWEST, end), 1000):
        try:
            return ClaimedPort(port)
        except OSError:
            continue
    raise OSError(errno.EADDRINUSE, "no port is free on this machine")


def _try(port: int) -> None:
    """Raises OSError if a program listens on the port, at any address of this machine."""
    for family, everywhere in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:  # a machine without IPv6
            continue
        with probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind((everywhere, port))
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
