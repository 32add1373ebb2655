"""The canary of a deployment's create or update, checked; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hotplate.platform.errors import Invalid
from hotplate.platform.spec.fields import Fields
from hotplate.serving.gateway.protocol.routes import RouteType
from hotplate.serving.gateway.protocol.version_shares import MAIN

ROUTE_TYPES = (RouteType.RANDOM, RouteType.HEADER, RouteType.QUERY)
VERSION_ID = re.compile("[A-Za-z0-9]([A-Za-z0-9._-]{0,38}[A-Za-z0-9])?")
ALL = 100
FIELD_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""That of a header field: a token of RFC 9110, 5.6.2."""
LONGEST = 100
"""Characters of the name of a header field or parameter."""


@dataclass(frozen=True)
class CanaryFields:
    """What was asked for; the versions' own settings are still to be read with their bentos."""

    route_type: str
    route_by: str
    weights: Mapping[str, int]
    versions: Mapping[str, Fields]


def canary_fields(fields: Fields) -> CanaryFields | None:
    """The canary; None = there is none, as where it has no versions. Raises Invalid."""
    canary = fields.fields("canary")
    listed = canary.fields("versions")
    versions = {name: listed.fields(name) for name in canary.mapping("versions")}
    if not versions:
        return None
    route_type = canary.choice("route_type", ROUTE_TYPES) or RouteType.RANDOM
    route_by = canary.text("route_by", "")
    if route_type != RouteType.RANDOM and not (route_by.strip() and len(route_by) <= LONGEST):
        what = "header field" if route_type == RouteType.HEADER else "parameter of the query"
        raise Invalid(
            f"{canary.at('route_by')}: route_type {route_type!r} needs the name of the {what}, "
            f"of up to {LONGEST} characters, by whose value requests are given to versions"
        )
    if route_type == RouteType.HEADER and not FIELD_NAME.fullmatch(route_by):
        raise Invalid(
            f"{canary.at('route_by')}: {route_by!r} is no name of a header field: letters, digits "
            "and '-', such as 'X-User', without a colon or blanks"
        )
    weights = {}
    for name, version in versions.items():
        _check_id(name, listed.at(name))
        if not version.has("bento"):
            raise Invalid(f"{version.at('bento')}: version {name!r} names no bento")
        weights[name] = version.number("weight", 0, high=ALL) or 0
    if sum(weights.values()) > ALL:
        raise Invalid(
            f"{canary.at('versions')}: their weights are {sum(weights.values())} together; "
            f"{ALL} is the most, and main has what they leave"
        )
    return CanaryFields(route_type, route_by, weights, versions)


def _check_id(name: str, path: str) -> None:
    if name == MAIN:
        raise Invalid(f"{path}: {MAIN!r} is the deployment itself; give the version another name")
    if not VERSION_ID.fullmatch(name):
        raise Invalid(
            f"{path}: {name!r:.80} is no name of a version: letters, digits, '.', '_' and '-', "
            "up to 40, with a letter or digit at both ends"
        )
