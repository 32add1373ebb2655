"""Addresses and ports of this machine."""

from __future__ import annotations

import errno
import random
import socket
from pathlib import Path

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "[::1]"}
_PORTS = range(10_000, 1 << 16)
_ENOUGH = 1000


def is_everywhere(host: str) -> bool:
    """Whether a server bound to `host` listens on every address of this machine."""
    return host in _EVERYWHERE


def reachable(host: str) -> str:
    """An address on which a server bound to `host` answers this machine."""
    return _EVERYWHERE.get(host, host)


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    return not obstacle(host, port)


def obstacle(host: str, port: int) -> str:
    """Why a server could not listen there now, as the operating system says it; else empty."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.strerror or str(error)
    return ""


def free_port(host: str) -> int:
    """A port that nobody uses now, and that Linux gives to no outgoing connection: nobody takes it
    by accident before its server listens, or while that is started again. Raises OSError if none
    is free."""
    ports = _never_given()
    for port in random.sample(ports, len(ports)):
        if is_free(host, port):
            return port
    raise OSError(errno.EADDRINUSE, f"no port from {ports[0]} to {ports[-1]} is free on {host}")


def _never_given() -> range:
    """The ports above those that the kernel hands out, else those below; all of them where it hands
    out nearly all, or does not say."""
    try:
        given = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
        first, last = map(int, given.split())
    except (OSError, ValueError):
        return _PORTS
    above, below = range(last + 1, _PORTS.stop), range(_PORTS.start, first)
    return next((ports for ports in (above, below) if len(ports) >= _ENOUGH), _PORTS)
