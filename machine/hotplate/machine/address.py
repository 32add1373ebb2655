"""Where a program listens: a host and a port, as they are written and read everywhere here."""

from __future__ import annotations

from typing import NamedTuple

LAST_PORT = 65535
OTHER_LOOPBACK = {"127.0.0.1": "::1", "0.0.0.0": "::1", "::1": "127.0.0.1"}
"""The other address that `localhost` may lead to, by the one that is listened on. A program that
listened there in our place would have the callers that ask for that name first."""


class Address(NamedTuple):
    """`host:port`, or `[host]:port` for IPv6."""

    host: str
    """A name or an address, without brackets."""
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Raises ValueError."""
        host, colon, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError(text)
        if not colon or not host or not port.isdecimal() or int(port) > LAST_PORT:
            raise ValueError(text)
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
