"""How a peer is noticed that has gone and said nothing, or nothing that anybody reads."""

from __future__ import annotations

import select
import socket

KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""A machine that vanishes is noticed after half a minute; otherwise its slots would stay taken."""


def keep_alive(sock: socket.socket) -> None:
    """Asks an idle peer again and again whether it is there; the connection ends if it is not."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in KEEPALIVE.items():
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)


def keep_taking(sock: socket.socket, take_s: float) -> None:
    """The same, and ends the connection of a peer that takes nothing that was sent for so long."""
    keep_alive(sock)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(take_s * 1000))


def has_hung_up(sock: socket.socket) -> bool:
    """Whether the peer's end has come, also behind bytes that nobody has read."""
    poll = select.poll()
    poll.register(sock.fileno(), getattr(select, "POLLRDHUP", 0))
    return bool(poll.poll(0))
