"""Which addresses belong to the internet, and which to this machine or its network; pure.

A server may redirect a fetch. A server on the internet must not redirect it to what only this
machine's network can reach: a cloud's metadata, a router, a database.
"""

from __future__ import annotations

import ipaddress
from ipaddress import IPv4Address, IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""The prefix by which a network without IPv4 reaches IPv4 addresses (RFC 6052)."""


def is_public(address: str) -> bool:
    """Whether a numeric address, as `getaddrinfo` gives it, is one of the internet."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address):
        within = _ipv4_within(found)
        if within is not None:
            return is_public(str(within))
        if found.teredo is not None:
            return False
    return found.is_global and not found.is_multicast and not found.is_reserved


def _ipv4_within(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that packets to it reach in the end, if any."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
