"""Who runs this installation, and may do what tenants may not."""

from __future__ import annotations

from hotplate.platform.store.records import User

ORGANIZATION = "default"
ADMIN = "admin"


def is_operator(user: User) -> bool:
    """Whether it is the user whose token `hotplate up` makes."""
    return (user.organization.name, user.name) == (ORGANIZATION, ADMIN)
