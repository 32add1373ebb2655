"""How it is noticed that a peer has gone without a notice, or with one that nothing reads."""

from __future__ import annotations

import select
import socket

KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""A machine that vanishes is noticed after half a minute; otherwise its slots would stay taken."""


def keep_alive(sock: socket.socket, idle_s: int = KEEPALIVE["TCP_KEEPIDLE"]) -> None:
    """Turns on keep-alive: the connection ends if its peer, idle for `idle_s`, no longer
    responds."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in (KEEPALIVE | {"TCP_KEEPIDLE": idle_s}).items():
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)


def keep_taking(sock: socket.socket, take_s: float) -> None:
    """The same, and ends the connection of a peer that has taken nothing for `take_s`."""
    keep_alive(sock)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(take_s * 1000))


def has_hung_up(sock: socket.socket) -> bool:
    """Whether the peer has ended its side, also behind bytes that were not read."""
    poll = select.poll()
    poll.register(sock.fileno(), getattr(select, "POLLRDHUP", 0))
    return bool(poll.poll(0))
