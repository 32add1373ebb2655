"""What the caller of a request may do, and what each call needs. Pure.

Every path below `/api/` and `/ws/` has a line in the table; a test holds it to the routes that
there are, and a path without one is nobody's. Whether an object is the caller's organization's is
not asked here: every query is about that organization alone.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from hotplate.platform.errors import Forbidden
from hotplate.platform.spec.scopes import (
    METRICS,
    OF_API,
    READ_CLUSTER,
    READ_ORGANIZATION,
    WRITE_CLUSTER,
    WRITE_ORGANIZATION,
    allows,
    is_for_endpoints,
)
from hotplate.platform.store.records import MemberRole, User
from hotplate.platform.store.tokens import METRICS_ROLE


@dataclass(frozen=True)
class Access:
    """Who calls, for which organization, with which rights."""

    user: User
    """With the organization that they act for."""
    role: MemberRole
    scopes: tuple[str, ...]
    operator: bool = False
    token: str = ""
    """Name of the token; empty = a browser's sign-in."""
    token_id: int | None = None
    everywhere: bool = False
    """Whether it is good for every organization of its user."""
    is_organizations: bool = False
    """Whether the token is the organization's own, and `user` only its maker."""
    is_replicas: bool = False
    """Whether it is a replica's key, of which the one call that it makes was let in."""


@dataclass(frozen=True)
class Need:
    """What a call needs."""

    scope: str = ""
    """Empty = any of the API's."""
    role: MemberRole = MemberRole.ENDPOINT_USER
    operator: bool = False
    """Whether it needs an operator."""


_READS, _WRITES = Need(READ_ORGANIZATION), Need(WRITE_ORGANIZATION, MemberRole.DEVELOPER)
LOOKS = Need(READ_CLUSTER, MemberRole.DEVELOPER)
"""To see deployments."""
_DEPLOYS = Need(WRITE_CLUSTER, MemberRole.DEVELOPER)
_CALLS = Need(WRITE_CLUSTER)
"""To call deployments."""
_ADMINISTERS = Need(WRITE_ORGANIZATION, MemberRole.ADMIN)
_OPERATES = Need(WRITE_CLUSTER, MemberRole.ENDPOINT_USER, operator=True)
OVERSEES = Need(READ_CLUSTER, MemberRole.ENDPOINT_USER, operator=True)
"""To see the platform itself."""
ANY = Need()
"""One of the API's scopes."""
_OWN = "/api/v1/hotplate/"

NEEDS: dict[str, tuple[Need, Need]] = {
    "/api/v1/auth/current": (ANY, ANY),
    "/api/v1/current_org": (ANY, ANY),
    "/api/v1/bento_repositories": (_READS, _WRITES),
    "/api/v1/model_repositories": (_READS, _WRITES),
    "/api/v1/bentos": (_READS, _WRITES),
    "/api/v1/models": (_READS, _WRITES),
    # Whose tokens somebody sees and may make is settled by their role there.
    "/api/v1/api_tokens": (_READS, Need(WRITE_ORGANIZATION)),
    "/api/v1/org_secrets": (Need(READ_ORGANIZATION, MemberRole.DEVELOPER), _WRITES),
    "/api/v1/instance_types": (LOOKS, _DEPLOYS),
    "/api/v2/deployments": (LOOKS, _DEPLOYS),
    f"{_OWN}deployments": (LOOKS, _DEPLOYS),
    # As a protected deployment is called, by whoever has a token of the scope 'endpoint'.
    f"{_OWN}deployments/{{name}}/call": (_CALLS, _CALLS),
    f"{_OWN}events": (LOOKS, _DEPLOYS),
    f"{_OWN}series": (LOOKS, _DEPLOYS),
    f"{_OWN}totals": (LOOKS, _DEPLOYS),
    f"{_OWN}costs": (LOOKS, _DEPLOYS),
    f"{_OWN}models": (_READS, _WRITES),
    f"{_OWN}stream": (LOOKS, _DEPLOYS),
    f"{_OWN}environments": (LOOKS, _DEPLOYS),
    f"{_OWN}quotas": (_READS, _OPERATES),
    f"{_OWN}organizations": (_READS, Need(WRITE_ORGANIZATION, operator=True)),
    f"{_OWN}organizations/{{organization}}/members": (
        Need(READ_ORGANIZATION, MemberRole.ADMIN),
        _ADMINISTERS,
    ),
    f"{_OWN}users/{{name}}/link": (_ADMINISTERS, _ADMINISTERS),
    f"{_OWN}users/{{name}}/operator": (_OPERATES, _OPERATES),
    f"{_OWN}audit": (Need(READ_ORGANIZATION, MemberRole.ADMIN), _ADMINISTERS),
    f"{_OWN}platform": (OVERSEES, _OPERATES),
    f"{_OWN}standby": (OVERSEES, _OPERATES),
    f"{_OWN}gc": (OVERSEES, _OPERATES),
    f"{_OWN}keys": (OVERSEES, _OPERATES),
    "/ws/v1/clusters": (LOOKS, _DEPLOYS),
    "/ws/v2/deployments": (LOOKS, _DEPLOYS),
}
"""By the first part of a route's path: what reading needs (GET, HEAD), and what changing."""

DOWNLOAD = "/presign_download_url"
"""The end of paths that the client PATCHes to read."""
LOOK_UP = "/api/v2/deployments/{name}"
"""What a replica asks for a deployment that it calls by name."""
OF_METRICS = Need(METRICS, METRICS_ROLE)


def need(method: str, path: str) -> Need | None:
    """What a call of a route (its pattern, with names in braces) needs; None = it has no line."""
    found = max((prefix for prefix in NEEDS if _is_below(path, prefix)), key=len, default=None)
    if found is None:
        return None
    reading, changing = NEEDS[found]
    return reading if method in ("GET", "HEAD") or path.endswith(DOWNLOAD) else changing


def check(access: Access, needed: Need) -> None:
    """Raises Forbidden, with what is missing."""
    for refusal in _refusals(access, needed):
        raise Forbidden(refusal)


def opens(names: Container[str], method: str, path: str, name: str) -> bool:
    """Whether a replica that calls the deployments of these names may make a call of a route (its
    pattern) with that name: only the one with which BentoML looks a deployment up."""
    return method == "GET" and path == LOOK_UP and name in names


def lacking(access: Access, scopes: Iterable[str] = OF_API) -> list[str]:
    """Those of these scopes that the caller does not have: what they make must not have them."""
    return [scope for scope in scopes if not allows(access.scopes, scope)]


def _refusals(access: Access, needed: Need) -> Iterator[str]:
    if needed.scope and not allows(access.scopes, needed.scope):
        yield _lacks(access, repr(needed.scope))
    if not needed.scope and not any(allows(access.scopes, scope) for scope in OF_API):
        yield _lacks(access, "'api'")
    if needed.operator and not access.operator:
        yield (
            "this needs an operator of the installation; ask one, or use the token that "
            "'hotplate up' keeps in its data directory"
        )
    if not access.operator and not access.role.is_at_least(needed.role):
        yield (
            f"this needs the role {needed.role.value!r} in organization "
            f"{access.user.organization.name!r}, where {access.user.name!r} has "
            f"{access.role.value!r}; ask one of its admins"
        )


def _lacks(access: Access, scope: str) -> str:
    callers = any(is_for_endpoints(scope) for scope in access.scopes)
    name = f"token {access.token!r}" if access.token else "this sign-in"
    return f"{name} lacks the scope {scope}; use one that has it" + (
        ", this is for callers of deployments" if callers else ""
    )


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix + "/")
