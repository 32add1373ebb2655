"""The route table for the gateways; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.platform.controller.workloads import Service
from hotplate.platform.store.records import Deployment, Outcome, Revision, Wanted
from hotplate.serving.gateway.routes import ReplicaRoute, Route


@dataclass(frozen=True)
class Addresses:
    """Where gateways listen."""

    public_host: str
    dependency_host: str = "127.0.0.1"


def public_name(deployment: Deployment) -> str:
    return f"{deployment.organization.name}/{deployment.name}"


def answering(deployment: Deployment) -> Revision:
    """The revision that requests are for: the one that serves, else the one that is coming."""
    return deployment.serving or deployment.latest


def routes_of(
    deployment: Deployment,
    services: Mapping[int, Sequence[Service]],
    replicas: Sequence[Replica],
    draining: frozenset[str],
    tokens: tuple[str, ...],
    addresses: Addresses,
) -> list[Route]:
    """The public route of a deployment and one per service that others call.

    `services` are those per revision number, also of a revision on its way out: its last requests
    call what they have always called.
    """
    routes = []
    revision = answering(deployment)
    for number, members in services.items():
        for service in members:
            if not service.workload.entry:
                routes.append(_dependency(service, replicas, draining, addresses))
            elif number == revision.number:
                routes.append(
                    _public(deployment, revision, service, replicas, draining, tokens, addresses)
                )
    return routes


def _public(
    deployment: Deployment,
    revision: Revision,
    service: Service,
    replicas: Sequence[Replica],
    draining: frozenset[str],
    tokens: tuple[str, ...],
    addresses: Addresses,
) -> Route:
    name = service.workload.key.service
    served = deployment.serving is not None
    mine = [
        r
        for r in replicas
        if r.key.service == name
        and _routable(r)
        and (r.id in draining or (served and r.key.revision == revision.number))
    ]
    closed = bool(revision.config.get("access_authorization"))
    return Route(
        name=public_name(deployment),
        host=addresses.public_host,
        port=deployment.port,
        replicas=_replica_routes(mine, draining),
        timeout_s=service.timeout_s,
        hold_limit_s=service.workload.cold_start_timeout_s,
        schema=_schema(revision),
        token_digests=tokens if closed else None,
        refuse=_refusal(deployment),
    )


def _dependency(
    service: Service,
    replicas: Sequence[Replica],
    draining: frozenset[str],
    addresses: Addresses,
) -> Route:
    key = service.workload.key
    mine = [r for r in replicas if r.key == key and _routable(r)]
    return Route(
        name=str(key),
        host=addresses.dependency_host,
        port=service.port,
        replicas=_replica_routes(mine, draining),
        timeout_s=service.timeout_s,
        hold_limit_s=service.workload.cold_start_timeout_s,
        internal=True,
    )


def _routable(replica: Replica) -> bool:
    return replica.state is ReplicaState.READY and bool(replica.address)


def _replica_routes(
    replicas: Sequence[Replica], draining: frozenset[str]
) -> tuple[ReplicaRoute, ...]:
    return tuple(
        ReplicaRoute(r.id, r.address, r.concurrency, draining=r.id in draining)
        for r in sorted(replicas, key=lambda r: r.id)
    )


def _schema(revision: Revision) -> str:
    schema = revision.bento.manifest.get("schema")
    return json.dumps(schema) if schema else ""


def _refusal(deployment: Deployment) -> str:
    if deployment.wanted is not Wanted.RUNNING:
        name = deployment.name
        return f"deployment '{name}' is terminated; start it with: bentoml deployment update {name}"
    if deployment.serving is None and deployment.latest.outcome is Outcome.FAILED:
        return f"deployment '{deployment.name}' has failed: {deployment.latest.reason}"
    return ""
