"""By which names a server of ours may be called. Pure.

A page of another site can have its name lead here (DNS rebinding); to its browser we then are that
site, and it may read what we answer. But it asks with that name in `Host`. Only names can be made
to lead elsewhere, so who calls us by an address has come by no such trick.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

EVERYWHERE = frozenset({"", "0.0.0.0", "::"})
"""Stand for all addresses of the machine."""
_FIELD = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{0,5}))?")
"""A name or an address, and a port. No user before it, no path behind it, no second one."""


@dataclass(frozen=True)
class OwnHosts:
    """The names of one server, beside `localhost`, `*.localhost` and the loopback addresses."""

    bound: str = "127.0.0.1"
    """Name or address on which it listens; any address will do where that is all of them."""
    names: tuple[str, ...] = ()
    """Further names or addresses; with a port it is left out."""

    def know(self, field: str) -> bool:
        """Whether a `Host` field, or the authority of a target in absolute form, is one of us.

        The port does not count: somebody may have mapped it.
        """
        host = host_of(field)
        if not host:
            return False
        address = _address(host)
        if address is None:
            is_loopback = host == "localhost" or host.endswith(".localhost")
        else:
            is_loopback = address.is_loopback
            if self.bound in EVERYWHERE:
                return True
        return is_loopback or host in {_whole(name) for name in (self.bound, *self.names)}

    def refusal(self, fields: Iterable[str], *, http10: bool = False) -> str:
        """Why a request with these `Host` fields (and the authority in its target, if there is
        one) is not for us, in one sentence; empty = it is. Only HTTP/1.0 may leave it out."""
        given = list(fields)
        if not given and not http10:
            return "Host is missing; an HTTP/1.1 request names it."
        for field in given:
            if not self.know(field):
                named = f" {host!r}" if (host := host_of(field)[:100]) else ""
                return (
                    f"Host{named} is not a name of this server: call it by one of its "
                    "names, or add this one to its setting 'hosts'."
                )
        return ""


def host_of(field: str) -> str:
    """The name or address in a `Host` field, in lower case, without port, brackets and the dot at
    its end; empty where the field is none."""
    found = _FIELD.fullmatch(field)
    if found is None:
        return ""
    host = found[1].lower()
    if host.startswith("["):
        return _whole(host[1:-1]) if ":" in host else ""
    return host.removesuffix(".")


def is_host(text: str) -> bool:
    """Whether a setting can name a host so: a name or an address, with a port or without."""
    return bool(_whole(text))


def _whole(text: str) -> str:
    """The host as `host_of` gives it, of what may also be an IPv6 address without brackets."""
    try:
        address = ip_address(text)
    except ValueError:
        return host_of(text)
    return str(address)


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
