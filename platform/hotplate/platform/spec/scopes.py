"""What tokens may be for; pure.

BentoCloud's scopes let a token call the API; the ones of our own are for callers of protected
deployments and for what collects metrics. A token may do what its scopes and its owner's role allow
together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hotplate.platform.errors import Invalid
from hotplate.platform.spec.fields import suggestion
from hotplate.platform.spec.names import check_deployment_name

API = "api"
READ_ORGANIZATION, WRITE_ORGANIZATION = "read_organization", "write_organization"
READ_CLUSTER, WRITE_CLUSTER = "read_cluster", "write_cluster"
ENDPOINT = "endpoint"
METRICS = "metrics"
OF_API = (READ_ORGANIZATION, WRITE_ORGANIZATION, READ_CLUSTER, WRITE_CLUSTER)
"""What `api` is all of: bentos, models, secrets, tokens and members are the organization's;
deployments, and all about them, the cluster's."""
SCOPES = (API, *OF_API, ENDPOINT, METRICS)


def endpoint_of(scope: str) -> str:
    """The deployment's name in `endpoint:NAME`; empty = it is another scope."""
    kind, _, name = scope.partition(":")
    return name if kind == ENDPOINT else ""


def is_for_endpoints(scope: str) -> bool:
    return scope == ENDPOINT or bool(endpoint_of(scope))


def allows(scopes: Iterable[str], needed: str) -> bool:
    """Whether scopes contain the one that a call needs. To write is to read too."""
    given = set(scopes)
    if needed in given or (needed in OF_API and API in given):
        return True
    return needed.startswith("read_") and needed.replace("read_", "write_", 1) in given


def checked_scopes(scopes: Sequence[str]) -> tuple[str, ...]:
    """The scopes of a new token, each once; none = `api`. Raises Invalid."""
    for index, scope in enumerate(scopes):
        if deployment := endpoint_of(scope):
            check_deployment_name(f"scopes[{index}]", deployment)
        elif scope not in SCOPES:
            raise Invalid(
                f"scopes[{index}]: there is no {scope!r:.80}{suggestion(scope, SCOPES)}; "
                f"{ENDPOINT}:NAME is for calls of one deployment"
            )
    chosen = tuple(dict.fromkeys(scopes)) or (API,)
    others = [scope for scope in chosen if not is_for_endpoints(scope)]
    if others and len(others) < len(chosen):
        raise Invalid(
            f"scopes: a token is for calls of deployments ({ENDPOINT!r}) or for the platform "
            f"({', '.join(map(repr, others))}), since whoever gets hold of a call must not be able "
            "to deploy; make two"
        )
    return chosen
