"""Addresses and ports of this machine."""

from __future__ import annotations

import socket

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "[::1]"}


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
    """A port that nobody uses now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
    return port
