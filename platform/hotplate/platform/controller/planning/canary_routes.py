"""Which parts of a deployment's requests the versions of its canary get; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hotplate.platform.controller.planning.routing import public_name
from hotplate.platform.store.records import Deployment, DesiredState
from hotplate.serving.gateway.protocol.routes import Route
from hotplate.serving.gateway.protocol.version_mark import VERSION
from hotplate.serving.gateway.protocol.version_shares import VersionShare


def with_canaries(routes: Sequence[Route], deployments: Iterable[Deployment]) -> list[Route]:
    """The routes, those of deployments with a canary with its versions.

    A version gets nothing before it has been ready once, so that nobody waits for one that may
    never be; whoever names it does.
    """
    by_name = {public_name(deployment): deployment for deployment in deployments}
    return [
        replace(
            route,
            versions=_shares(route.name, deployment, by_name),
            route_type=deployment.canary["route_type"],
            route_by=deployment.canary["route_by"],
        )
        if (deployment := by_name.get(route.name)) is not None and deployment.canary
        else route
        for route in routes
    ]


def _shares(
    name: str, deployment: Deployment, by_name: Mapping[str, Deployment]
) -> tuple[VersionShare, ...]:
    shares = []
    for version, weight in deployment.canary["weights"].items():
        route = f"{name}{VERSION}{version}"
        parts = tuple((start, end) for start, end in deployment.canary["parts"][version])
        own = by_name.get(route)
        ready = own is not None and own.serving is not None and own.wanted is DesiredState.RUNNING
        shares.append(VersionShare(version, route, weight if ready else 0, parts if ready else ()))
    return tuple(shares)
