"""How often somebody may be wrong; pure.

Only wrong tries are counted, so nobody is shut out who has a good token: what stands behind the
same address as a guesser goes on.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from ipaddress import IPv6Address, ip_address, ip_network

MOST = 10
WINDOW_S = 60.0
IPV6_SITE_BITS = 64
ADDRESSES = 10_000
"""Remembered at most; of more, those that were wrong longest ago are forgotten."""


def counted_as(address: str) -> str:
    """What one guesser has: an IPv4 address, or the 64 bits that an IPv6 network begins with, since
    its owner chooses the others at will (RFC 6177)."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        mapped = found.ipv4_mapped
        return str(mapped or ip_network((int(found) >> 64 << 64, IPV6_SITE_BITS)))
    return str(found)


class WrongTries:
    """The wrong tokens, codes and links of the last minute, by the address that they came from."""

    def __init__(self, most: int = MOST, window_s: float = WINDOW_S) -> None:
        self._most = most
        self._window_s = window_s
        self._tries: OrderedDict[str, deque[float]] = OrderedDict()

    def wrong(self, address: str, now: float) -> int | None:
        """Counts a wrong try at `now` (any clock, seconds). None = it may be answered as such; else
        there were too many, and in so many whole seconds another one may be."""
        source = counted_as(address)
        tries = self._tries.setdefault(source, deque(maxlen=self._most + 1))
        self._tries.move_to_end(source)
        if len(self._tries) > ADDRESSES:
            self._tries.popitem(last=False)
        while tries and tries[0] <= now - self._window_s:
            tries.popleft()
        if len(tries) < self._most:
            tries.append(now)
            return None
        return max(1, math.ceil(tries[0] + self._window_s - now))
