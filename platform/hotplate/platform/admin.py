"""Who runs this installation, and may do what tenants may not."""

from __future__ import annotations

from hotplate.platform.store.records import User

ORGANIZATION = "default"
ADMIN = "admin"
CALLERS = "endpoint-token"
"""The operator's two tokens, each of which lies in a file of the data directory: the one to log in
with has their own name, and this one is for callers of protected deployments."""


def is_operator(user: User) -> bool:
    """Whether it is the user whose token `hotplate up` makes."""
    return (user.organization.name, user.name) == (ORGANIZATION, ADMIN)
