"""Whether a request for a page comes from a person at this machine; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv6Address, ip_address

PROXIES = ("forwarded", "via", "x-forwarded", "x-real-ip", "x-client-ip", "true-client-ip", "cf-")
"""Prefixes of header fields that a proxy adds: its visitor may be anywhere."""


def is_from_this_machine(peer: str, hosts: Sequence[str], fields: Iterable[str]) -> bool:
    """Whether nobody stands between us and the caller, and it asked for this machine by name.

    `peer` is the connection's other end, `hosts` the values of `Host`, `fields` the names of all
    header fields. A page of another site, whose name was made to lead here (DNS rebinding), asks
    in the browser of somebody at this machine, but with its own name as the host.
    """
    if any(field.lower().startswith(PROXIES) for field in fields):
        return False
    return len(hosts) == 1 and _is_loopback(peer) and _is_own_name(hosts[0])


def _is_own_name(host: str) -> bool:
    name, separator, port = host.rpartition(":")
    if not separator or not port.isdecimal() or len(port) > 5:
        name = host
    if name.startswith("[") and name.endswith("]"):
        return _is_loopback(name[1:-1])
    return name.lower() == "localhost" or (":" not in name and _is_loopback(name))


def _is_loopback(address: str) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped.is_loopback
    return found.is_loopback
