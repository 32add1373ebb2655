"""The host name by which a deployment is called where all share an address; pure."""

from __future__ import annotations

from collections.abc import Iterator

from hotplate.machine.slug import slug

STAR = "*"
"""Stands in the URL of all deployments where the name of each does."""
MOST = 63
"""Characters of a part of a host name (RFC 1123)."""
DEFAULT_ORGANIZATION = "default"
_BETWEEN = "--"


def deployment_host(name: str, organization: str) -> str:
    """Its part of the host name."""
    return slug(_text(name, organization), MOST)


def rivals(name: str, organization: str) -> Iterator[tuple[str, str]]:
    """Name and organization of each other deployment that would have the same host name."""
    text = _text(name, organization)
    if organization != DEFAULT_ORGANIZATION:
        yield text, DEFAULT_ORGANIZATION
    at = text.find(_BETWEEN)
    while at >= 0:
        other = text[:at], text[at + len(_BETWEEN) :]
        if all(other) and other[1] != DEFAULT_ORGANIZATION and other != (name, organization):
            yield other
        at = text.find(_BETWEEN, at + 1)


def _text(name: str, organization: str) -> str:
    return name if organization == DEFAULT_ORGANIZATION else f"{name}{_BETWEEN}{organization}"
