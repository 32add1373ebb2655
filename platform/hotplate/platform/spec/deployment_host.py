"""The host name by which a deployment is called where all share an address; pure."""

from __future__ import annotations

from hotplate.machine.slug import slug

STAR = "*"
"""Stands in the URL of all deployments where the name of each does."""
MOST = 63
"""Characters of a part of a host name (RFC 1123)."""
DEFAULT_ORGANIZATION = "default"


def deployment_host(name: str, organization: str) -> str:
    """Its part of the host name. Two may have the same, as a name may look like what is made of
    another one: the store takes the first."""
    if organization == DEFAULT_ORGANIZATION:
        return slug(name, MOST)
    return slug(f"{name}--{organization}", MOST)
