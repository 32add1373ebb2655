"""How the world calls us, and from where; pure.

Behind a proxy that ends TLS, a request's own scheme, host and peer are the proxy's doing. What the
proxy says of them is believed only where the setting `trusted_proxies` names its address, and
`public_url` is the word on how the world calls us where it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address, ip_network


def client_address(peer: str, forwarded_for: str, trusted: Sequence[str]) -> str:
    """The address from which a request came: the connection's other end, or, of a trusted proxy's,
    the last address of `X-Forwarded-For` that is none.

    All lines of that header, joined by commas: a proxy may add a line below its caller's own.
    """
    if not _is_trusted(peer, trusted):
        return peer
    hops = [hop.strip() for hop in forwarded_for.split(",") if hop.strip()]
    for hop in reversed(hops):
        if not _is_trusted(hop, trusted):
            return hop if _is_address(hop) else peer
    return hops[0] if hops and _is_address(hops[0]) else peer


def public_origin(
    scheme: str,
    host: str,
    peer: str,
    forwarded_proto: str,
    trusted: Sequence[str],
    public_url: str,
) -> str:
    """`scheme://host[:port]` by which the caller has reached us; `forwarded_proto` has all lines
    of `X-Forwarded-Proto`, joined by commas."""
    if public_url:
        return public_url.rstrip("/")
    if _is_trusted(peer, trusted):
        given = forwarded_proto.split(",")[-1].strip().lower()
        scheme = given if given in ("http", "https") else scheme
    return f"{scheme}://{host}"


def is_network(text: str) -> bool:
    """Whether it is an address or a network, such as 10.0.0.0/8."""
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def _is_trusted(address: str, trusted: Sequence[str]) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return any(found in ip_network(network, strict=False) for network in trusted)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
