"""The route table for the gateways; pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hotplate.deploy.engine import Replica
from hotplate.platform.controller.planning.addresses import Addresses
from hotplate.platform.controller.planning.messages import for_callers
from hotplate.platform.controller.planning.reachable import pod_sources, reachable
from hotplate.platform.controller.planning.slot_counts import SlotSource
from hotplate.platform.controller.planning.status import NO_REQUESTS
from hotplate.platform.controller.planning.turnovers import shared_strategy
from hotplate.platform.controller.planning.workloads import Service, task_paths
from hotplate.platform.spec.label_settings import LabelSettings
from hotplate.platform.store.records import Deployment, DesiredState, Revision, RolloutOutcome
from hotplate.serving.gateway.protocol.cors_rules import Cors
from hotplate.serving.gateway.protocol.routes import TASKS, PodSource, ReplicaRoute, Route
from hotplate.serving.gateway.protocol.version_shares import MAIN
from hotplate.serving.replica.ready_path import ready_path


def public_name(deployment: Deployment) -> str:
    """The name of a deployment's public route: `organization/deployment`."""
    return f"{deployment.organization.name}/{deployment.name}"


def version_of(deployment: Deployment, number: int) -> str:
    """What gateways count the answers of a revision of a deployment, or of a version, by."""
    return f"{deployment.version or MAIN}@{number}"


def active_revision(deployment: Deployment) -> Revision:
    """The revision that requests are for: the serving one, or else the one that rolls out."""
    return deployment.serving or deployment.latest


def routes_of(
    deployment: Deployment,
    services: Mapping[int, Sequence[Service]],
    replicas: Sequence[Replica],
    draining: frozenset[str],
    addresses: Addresses,
    slots: SlotSource,
) -> list[Route]:
    """The public route of a deployment, one for its tasks where these have slots of their own, and
    one for each service that others call.

    `services`: by revision number, including a revision that ends, whose last requests still call
    its own services. A service gets requests once all services that it calls are ready. While two
    revisions share the requests, the public route has the replicas of both. A replica that is being
    stopped drains, whoever ends it.
    """
    draining |= {replica.id for replica in replicas if replica.leaves}
    routes = []
    revision = active_revision(deployment)
    settings = LabelSettings.of(deployment.labels)
    for number, members in services.items():
        for service in members:
            there = reachable(service, members, replicas, draining)
            if not service.workload.entry:
                inner = _dependency(service, there, draining, slots)
                found = pod_sources(service, members, replicas, draining, addresses, slots)
                routes.append(replace(inner, pods=found))
            elif number == revision.number:
                entries = _entry_replicas(deployment, services, replicas, draining, slots)
                public = _public(deployment, revision, service, entries, addresses, slots)
                found = _public_pods(deployment, services, replicas, draining, addresses, slots)
                public = replace(public, pods=found)
                routes += [public, *_tasks(public, slots.of(service).tasks)]
    return [
        replace(
            route,
            waits_for="" if any(not r.draining for r in route.replicas) else _waits_for(deployment),
            may_run_twice=settings.may_run_twice,
            priority_header=settings.priority_header and not route.internal,
            organization_header="" if route.internal else settings.organization_header,
        )
        for route in routes
    ]


def _public(
    deployment: Deployment,
    revision: Revision,
    service: Service,
    replicas: tuple[ReplicaRoute, ...],
    addresses: Addresses,
    slots: SlotSource,
) -> Route:
    closed = bool(revision.config.get("access_authorization"))
    config = service.workload.config
    rules = (config.get("http") or {}).get("cors") or {}
    return Route(
        name=public_name(deployment),
        **addresses.public(deployment),
        replicas=replicas,
        slots_from=slots.of(service).source_text,
        timeout_s=service.timeout_s,
        hold_limit_s=service.workload.cold_start_timeout_s,
        schema=revision.bento.schema,
        ready_path=ready_path(config),
        tasks=task_paths(revision.bento.manifest),
        tasks_apart=slots.of(service).tasks > 0,
        cors=_cors(rules, closed),
        cors_in_replica=bool(rules.get("enabled") and rules.get(ORIGIN_PATTERN)),
        tokens_of=deployment.organization.name if closed else "",
        refuse=_refusal(deployment),
        tls_certificate=addresses.tls_certificate,
        tls_key=addresses.tls_key,
    )


def _entry_replicas(
    deployment: Deployment,
    services: Mapping[int, Sequence[Service]],
    replicas: Sequence[Replica],
    draining: frozenset[str],
    slots: SlotSource,
) -> tuple[ReplicaRoute, ...]:
    """Those of the public route: of all revisions that share the requests, and what drains."""
    active = active_revision(deployment).number
    shared = shared_strategy(deployment) is not None
    found: list[ReplicaRoute] = []
    for number, members in services.items():
        serves = deployment.serving is not None and (shared or number == active)
        for service in members:
            if not service.workload.entry:
                continue
            mine = [
                r
                for r in reachable(service, members, replicas, draining)
                if _does_the_work_of(r, service, services, active)
                and (r.id in draining or (serves and r.key.revision == number))
            ]
            found += [
                replace(route, version=version_of(deployment, r.key.revision))
                for r, route in zip(
                    sorted(mine, key=lambda r: r.id),
                    _replica_routes(service, mine, draining, slots),
                    strict=True,
                )
            ]
    return tuple(sorted(found, key=lambda entry: entry.id))


def _public_pods(
    deployment: Deployment,
    services: Mapping[int, Sequence[Service]],
    replicas: Sequence[Replica],
    draining: frozenset[str],
    addresses: Addresses,
    slots: SlotSource,
) -> tuple[PodSource, ...]:
    """Where gateways find replicas of the public route themselves: of all revisions that share the
    requests."""
    active = active_revision(deployment).number
    shared = shared_strategy(deployment) is not None
    found: list[PodSource] = []
    for number, members in services.items():
        if deployment.serving is None or not (shared or number == active):
            continue
        entries = [service for service in members if service.workload.entry]
        for service in entries:
            sources = pod_sources(service, members, replicas, draining, addresses, slots)
            version = version_of(deployment, number)
            found += [replace(s, like=replace(s.like, version=version)) for s in sources]
    return tuple(found)


def _does_the_work_of(
    replica: Replica, service: Service, services: Mapping[int, Sequence[Service]], active: int
) -> bool:
    """Whether it is the service's. One of a revision of which nothing is known any longer counts
    as the active one's."""
    if replica.key.revision in services:
        return replica.key == service.workload.key
    key = service.workload.key
    return key.revision == active and replica.key.service == key.service


def _dependency(
    service: Service,
    replicas: Sequence[Replica],
    draining: frozenset[str],
    slots: SlotSource,
) -> Route:
    key = service.workload.key
    host, _, port = service.address.rpartition(":")
    mine = [r for r in replicas if r.key == key]
    return Route(
        name=str(key),
        host=host,
        port=int(port) if host else 0,
        hosts=() if host else (service.address,),
        replicas=_replica_routes(service, mine, draining, slots),
        slots_from=slots.of(service).source_text,
        timeout_s=service.timeout_s,
        hold_limit_s=service.workload.cold_start_timeout_s,
        internal=True,
        secret_digest=_digest(service.secret),
    )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest() if secret else ""


def _tasks(public: Route, slots: int) -> list[Route]:
    """The route in which a deployment's kept tasks wait for their own slots; it has no callers."""
    if not slots:
        return []
    replicas = tuple(_with_slots(each, slots) for each in public.replicas)
    name = public.name + TASKS
    pods = tuple(replace(s, like=_with_slots(s.like, slots)) for s in public.pods)
    apart = replace(public, name=name, replicas=replicas, pods=pods, hosts=(), schema="")
    own = "of their own for tasks"
    return [replace(apart, host="", port=0, slots_from=own, tasks=(), tasks_apart=False)]


def _with_slots(route: ReplicaRoute, slots: int) -> ReplicaRoute:
    return replace(route, concurrency=slots, learns=False, least=1)


def _replica_routes(
    service: Service,
    replicas: Sequence[Replica],
    draining: frozenset[str],
    slots: SlotSource,
) -> tuple[ReplicaRoute, ...]:
    found = slots.of(service)
    return tuple(
        ReplicaRoute(
            r.id,
            r.address,
            slots.initial(r, service),
            draining=r.id in draining,
            worker=True,
            learns=found.learns,
            least=found.least,
            uid=r.uid,
        )
        for r in sorted(replicas, key=lambda r: r.id)
    )


ORIGIN_PATTERN = "access_control_allow_origin_regex"


def _cors(rules: Mapping[str, Any], closed: bool) -> Cors | None:
    """The rules of BentoML's `http.cors`. Pages may also send our token to a closed deployment."""
    if not rules.get("enabled") or rules.get(ORIGIN_PATTERN):
        return None

    def listed(name: str) -> tuple[str, ...]:
        value = rules.get(f"access_control_{name}") or ()
        return (value,) if isinstance(value, str) else tuple(value)

    return Cors(
        allow_origins=listed("allow_origins"),
        allow_credentials=bool(rules.get("access_control_allow_credentials")),
        allow_methods=listed("allow_methods") or Cors.allow_methods,
        allow_headers=(*listed("allow_headers"), *(("Authorization",) if closed else ())),
        expose_headers=listed("expose_headers"),
        max_age_s=int(rules.get("access_control_max_age") or Cors.max_age_s),
    )


def _waits_for(deployment: Deployment) -> str:
    """What a request waits for; empty where the deployment only sleeps."""
    return "" if deployment.reason == NO_REQUESTS else for_callers(deployment.reason)


def _refusal(deployment: Deployment) -> str:
    if deployment.wanted is not DesiredState.RUNNING:
        name = deployment.name
        return f"deployment '{name}' is terminated; start it with: bentoml deployment update {name}"
    if deployment.serving is None and deployment.latest.outcome is RolloutOutcome.FAILED:
        reason = for_callers(deployment.latest.reason)
        return f"deployment '{deployment.name}' has failed: {reason}"
    return ""
