"""Which version of a deployment a request goes to. Pure.

The request may name one (`Hotplate-Version`). Otherwise it has a point in the range that the
versions share (`protocol/version_shares.py`): the hash of a value that it carries, which is the
same in every gateway, or the next one of a sequence that spreads evenly, so that each version gets
its share of few requests as well as of many.
"""

from __future__ import annotations

from hashlib import blake2b
from random import Random
from typing import Final
from urllib.parse import parse_qsl

from hotplate.serving.gateway.errors import UnknownVersion
from hotplate.serving.gateway.http1.request_head import RequestHead
from hotplate.serving.gateway.protocol.headers import VERSION_FIELD
from hotplate.serving.gateway.protocol.routes import Route, RouteType
from hotplate.serving.gateway.protocol.version_shares import MAIN, WHOLE

HASH_BYTES: Final = 8
STEP: Final = WHOLE * 0.6180339887498949
"""Multiples of the golden ratio fill a circle most evenly, also those of any regular part of the
requests (Knuth, The Art of Computer Programming 3, 6.4)."""


class VersionChoice:
    """Chooses for the requests of one public route."""

    def __init__(self, route: Route) -> None:
        self._versions = route.versions
        self._type = route.route_type
        self._by = route.route_by
        self._field = route.route_by.lower().encode("latin-1", "replace")
        self._named = {version.id.encode(): version.id for version in route.versions}
        self._named[MAIN.encode()] = MAIN
        self._point = Random().random() * WHOLE

    def is_of(self, route: Route) -> bool:
        """Whether it chooses as the route says."""
        made_of = (self._versions, self._type, self._by)
        return made_of == (route.versions, route.route_type, route.route_by)

    def of(self, request: RequestHead) -> str:
        """The version's id. A request that names one that is not there gets `main`, where it is
        refused once it may know which there are (`refuse_unknown_version`)."""
        named = request.value(VERSION_FIELD)
        if named:
            return self._named.get(named, MAIN)
        if self._type == RouteType.RANDOM:
            self._point = (self._point + STEP) % WHOLE
            return self._at(self._point)
        value = self._value(request)
        return self._at(point_of(value)) if value else MAIN

    def _value(self, request: RequestHead) -> bytes:
        """What the request is chosen by; empty = it does not have it."""
        if self._type == RouteType.HEADER:
            return request.value(self._field)
        query = request.target.partition(b"?")[2].decode("latin-1")
        for name, value in parse_qsl(query, keep_blank_values=True):
            if name == self._by:
                return value.encode()
        return b""

    def _at(self, point: float) -> str:
        for version in self._versions:
            for part in version.parts:
                if part[0] <= point < part[1]:
                    return version.id
        return MAIN


def point_of(value: bytes) -> float:
    """The point of a value in [0, 100): its BLAKE2b, 8 bytes, as a fraction."""
    hashed = int.from_bytes(blake2b(value, digest_size=HASH_BYTES).digest(), "big")
    # 53 of the bits, as many as a float has, so that it is never rounded up to the whole.
    return (hashed >> 11) * WHOLE / (1 << 53)


def refuse_unknown_version(route: Route, request: RequestHead) -> None:
    """Raises UnknownVersion if the request names a version that the route does not have."""
    named = request.value(VERSION_FIELD).decode("latin-1")
    known = [MAIN, *(version.id for version in route.versions)]
    if named and named not in known:
        raise UnknownVersion(
            f"{route.name} has no version {named[:100]!r}; send Hotplate-Version with one of "
            f"{', '.join(known)}, or leave it out."
        )
