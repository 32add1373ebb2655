"""The routes of a table as they are served where a deployment has a canary. Pure.

A version's route has its own replicas, queue, limits of time and paths, as its bento says. What
decides who is let in is its public route's, because both are reached at one address.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from hotplate.serving.gateway.protocol.routes import TASKS, Route
from hotplate.serving.gateway.protocol.version_shares import MAIN, laid_out


def with_versions(routes: Sequence[Route]) -> Sequence[Route]:
    """The routes of one table. A version whose route is missing in it leaves its share to
    `main`."""
    if not any(route.versions for route in routes):
        return routes
    named = {route.name for route in routes}
    publics = [_public_route(route, named) for route in routes if route.versions]
    served = {route.name: route for route in publics}
    by_name = {route.name: route for route in routes}
    for public in publics:
        for version in public.versions:
            served[version.route] = _version_route(by_name[version.route], public, version.id)
    for name in named.intersection(name + TASKS for name in list(served)):
        version_id = served[name.removesuffix(TASKS)].version
        served[name] = replace(by_name[name], version=version_id)
    return [served.get(route.name, route) for route in routes]


def _public_route(route: Route, named: Container[str]) -> Route:
    versions = tuple(v for v in laid_out(route.versions) if v.route in named)
    return replace(route, versions=versions, version=MAIN if versions else "")


def _version_route(own: Route, public: Route, version: str) -> Route:
    """All of the public route but what is the version's own."""
    return replace(
        public,
        name=own.name,
        port=0,
        replicas=own.replicas,
        queue_limit=own.queue_limit,
        queue_limit_bytes=own.queue_limit_bytes,
        timeout_s=own.timeout_s,
        hold_limit_s=own.hold_limit_s,
        slots_from=own.slots_from,
        schema=own.schema,
        ready_path=own.ready_path,
        tasks=own.tasks,
        tasks_apart=own.tasks_apart,
        may_run_twice=own.may_run_twice,
        waits_for=own.waits_for,
        refuse=own.refuse,
        versions=(),
        version=version,
    )
