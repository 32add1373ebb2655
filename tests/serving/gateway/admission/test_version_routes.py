"""What a version's route has of its public route, and what it has itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hotplate.serving.gateway.admission.version_routes import with_versions
from hotplate.serving.gateway.protocol.cors_rules import Cors
from hotplate.serving.gateway.protocol.routes import TASKS, ReplicaRoute, Route, RouteType
from hotplate.serving.gateway.protocol.version_shares import VersionShare

PUBLIC = Route(
    "acme/echo",
    "10.0.0.1",
    7100,
    replicas=(ReplicaRoute("a", "127.0.0.1:1"),),
    body_limit_bytes=100,
    cors=Cors(allow_origins=("https://a.test",)),
    token_digests=("0" * 64,),
    organization_header="X-Org",
    tasks=("/main",),
    timeout_s=1,
    versions=(VersionShare("next", "acme/echo#next", 10), VersionShare("gone", "acme/#gone", 20)),
    route_type=RouteType.HEADER,
    route_by="X-User",
)
NEXT = Route(
    "acme/echo#next",
    "",
    0,
    replicas=(ReplicaRoute("b", "127.0.0.1:2"),),
    tasks=("/next",),
    timeout_s=2,
)
OTHER = Route("acme/other", "127.0.0.1", 7101)


def test_a_version_admits_as_its_public_route_and_serves_as_its_bento_says() -> None:
    public, version, other = with_versions((PUBLIC, NEXT, OTHER))
    assert other is OTHER
    assert public.version == "main"
    own: dict[str, Any] = {
        "name": NEXT.name,
        "port": 0,
        "replicas": NEXT.replicas,
        "tasks": ("/next",),
    }
    assert version == replace(PUBLIC, **own, timeout_s=2, versions=(), version="next")


def test_a_version_whose_route_is_missing_leaves_its_share_to_main() -> None:
    public, _ = with_versions((PUBLIC, NEXT))
    assert [(v.id, v.parts) for v in public.versions] == [("next", ((0.0, 10.0),))]
    (alone,) = with_versions((PUBLIC,))
    assert (alone.versions, alone.version) == ((), "")


def test_tables_without_versions_are_as_they_came() -> None:
    routes = (OTHER, NEXT)
    assert with_versions(routes) is routes


def test_tasks_with_slots_of_their_own_know_their_version() -> None:
    tasks = [Route(name + TASKS, "", 0) for name in (PUBLIC.name, NEXT.name, OTHER.name)]
    served = with_versions((PUBLIC, NEXT, OTHER, *tasks))
    assert [route.version for route in served] == ["main", "next", "", "main", "next", ""]
