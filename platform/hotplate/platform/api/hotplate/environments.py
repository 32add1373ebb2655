"""Our own routes about Python environments: what there is, and how their builds went."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import UTC, datetime
from typing import Any, Protocol

from aiohttp import web

from hotplate.platform.api.bentocloud.auth import ORGANIZATION_HEADER
from hotplate.platform.api.bentocloud.deployments import named_deployment
from hotplate.platform.api.web.requests import access, organization
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Organization
from hotplate.serving.replica.environments.overview import EnvironmentView

ROOT = "/api/v1/hotplate/environments"
Users = Mapping[str, Set[tuple[str, str]]]
"""By a bento's manifest: organization and name of each deployment that keeps it."""


class Overview(Protocol):
    """What there is of environments, and the output of their builds. It blocks."""

    def views(self, owners: Iterable[str]) -> Sequence[EnvironmentView]: ...

    def build_log(
        self, owners: Iterable[str], bento: str
    ) -> tuple[EnvironmentView, str] | None: ...


class NodesEnvironments(Protocol):
    """Those of this node, or of a cluster."""

    @property
    def overview(self) -> Overview: ...

    def folders(self, owners: Iterable[str]) -> Mapping[str, str]: ...


class EnvironmentRoutes:
    """An organization sees its own, and those that all share as far as it uses them."""

    def __init__(self, store: Store, environments: NodesEnvironments) -> None:
        self._store = store
        self._environments = environments

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get(ROOT, self.list_all),
            web.get("/api/v1/hotplate/deployments/{name}/build_log", self.build_log),
        ]

    async def list_all(self, request: web.Request) -> web.Response:
        """`GET`: the environments of the caller's organization; an operator who names none sees
        all."""
        mine = organization(request)
        sees_all = access(request).operator and ORGANIZATION_HEADER not in request.headers
        tenants = await self._store.run(self._store.organizations.all) if sees_all else [mine]
        names = self._names(tenants)
        users = await self._store.run(self._store.revisions.users, None if sees_all else mine.id)
        views = await asyncio.to_thread(self._environments.overview.views, list(names))
        items = [_shown(view, names[view.owner], users) for view in views]
        # What all share is nobody's: an organization sees what it uses of that.
        items = [one for one in items if sees_all or one["organization"] or one["used_by"]]
        return web.json_response({"items": items, "total": len(items)})

    async def build_log(self, request: web.Request) -> web.Response:
        """`GET …/build_log`: the environment of the deployment's latest revision, and the whole
        output of its build; empty where none was built here."""
        deployment = await named_deployment(self._store.deployments, request)
        bento = deployment.latest.bento.files
        names = list(self._names([deployment.organization]))
        found = await asyncio.to_thread(self._environments.overview.build_log, names, bento)
        if found is None:
            return web.json_response({"digest": "", "state": "", "log": ""})
        view, text = found
        return web.json_response({"digest": view.digest, "state": view.state, "log": text})

    def _names(self, tenants: Sequence[Organization]) -> dict[str, str]:
        """The names of organizations, by that of their folder; of what all share, empty."""
        of_owner = {tenant.owner: tenant.name for tenant in tenants}
        folders = self._environments.folders(of_owner)
        return {folder: of_owner.get(owner, "") for folder, owner in folders.items()}


def _shown(view: EnvironmentView, name: str, users: Users) -> dict[str, Any]:
    by_bento = defaultdict[str, set[str]](set)
    for bento in view.bentos:
        for tenant, deployment in users.get(bento, ()):
            if name in ("", tenant):
                by_bento[bento].add(deployment)
    return {
        "digest": view.digest,
        "state": view.state,
        "organization": name,
        "size_bytes": view.size_bytes,
        "used_by": sorted(set().union(*by_bento.values())),
        "built_at": None
        if view.built_at is None
        else datetime.fromtimestamp(view.built_at, UTC).isoformat(),
        "build_s": view.build_s,
        "log_tail": list(view.log_tail),
    }
