"""Versions of bentos and models: made, read, changed, listed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from hotplate.platform.api.bentocloud import views
from hotplate.platform.api.web.requests import (
    COUNT_ANY,
    COUNT_MAX,
    body,
    organization,
    query_filter,
    query_number,
    query_start,
)
from hotplate.platform.errors import NotFound
from hotplate.platform.spec.fields import Fields
from hotplate.platform.spec.manifests import checked_bento, checked_model
from hotplate.platform.spec.names import check_name
from hotplate.platform.store.artifacts import ArtifactDraft, Artifacts
from hotplate.platform.store.records import Artifact, Kind

Settled = Callable[[web.Request, Artifact], Awaitable[Artifact]]


class ArtifactRoutes:
    """Those of one kind."""

    def __init__(self, kind: Kind, artifacts: Artifacts, settled: Settled | None = None) -> None:
        """`settled` waits until what was uploaded for a version is unpacked."""
        self._kind = kind
        self._settled = settled
        self._checked = checked_bento if kind is Kind.BENTO else checked_model
        self._artifacts = artifacts

    def routes(self) -> list[web.RouteDef]:
        root = collection_path(self._kind)
        return [
            web.post(root, self.create),
            web.get(root, self.list_versions),
            web.get(root + "/{version}", self.get),
            web.patch(root + "/{version}", self.update),
            web.get(f"/api/v1/{self._kind}s", self.list_all),
        ]

    async def create(self, request: web.Request) -> web.Response:
        """Answers the version that is there, too: of clients that push at once one makes it."""
        fields = await body(request)
        draft = ArtifactDraft(
            version=check_name("version", fields.text("version")),
            description=fields.text("description", ""),
            manifest=self._checked(fields),
            labels=fields.pairs("labels", "key"),
            build_at=fields.text("build_at", ""),
        )
        artifact = await self._artifacts.run(
            self._artifacts.create,
            organization(request).id,
            self._kind,
            request.match_info["name"],
            draft,
        )
        return web.json_response(views.artifact(artifact))

    async def get(self, request: web.Request) -> web.Response:
        """`GET …/{version}`: the version. Raises NotFound.

        The client pushes what is not there whole: while it is unpacked, the answer waits.
        """
        artifact = await named(self._kind, self._artifacts, request)
        if self._settled is not None and not artifact.usable:
            artifact = await self._settled(request, artifact)
        return web.json_response(views.artifact(artifact))

    async def update(self, request: web.Request) -> web.Response:
        """A push of a version that was never finished, or is forced. Null leaves a field."""
        artifact = await named(self._kind, self._artifacts, request)
        fields = await body(request)
        artifact = await self._artifacts.run(
            self._artifacts.update,
            artifact.id,
            fields.text("description", "") if fields.has("description") else None,
            self._checked(fields) if fields.has("manifest") else None,
            _labels(fields),
        )
        return web.json_response(views.artifact(artifact))

    async def list_versions(self, request: web.Request) -> web.Response:
        """Newest first. The client takes the first without looking: none at all is a 404."""
        name = request.match_info["name"]
        items, start, total = await self._page(request, name)
        if not total:
            raise NotFound(f"{self._kind} {name!r:.80} has no version in this organization")
        return web.json_response(views.listed(items, start, total))

    async def list_all(self, request: web.Request) -> web.Response:
        """`GET /api/v1/{kind}s?start=&count=&q=`: versions of all repositories, newest first."""
        items, start, total = await self._page(request, "")
        return web.json_response(views.listed(items, start, total))

    async def _page(self, request: web.Request, name: str) -> tuple[list[views.Json], int, int]:
        start = query_start(request)
        count = query_number(request, "count", COUNT_MAX, most=COUNT_ANY)
        found, total = await self._artifacts.run(
            self._artifacts.page,
            organization(request).id,
            self._kind,
            name,
            start,
            count,
            query_filter(request),
        )
        return [views.artifact(artifact) for artifact in found], start, total


def collection_path(kind: Kind) -> str:
    """Where the versions of a repository are."""
    return f"/api/v1/{kind}_repositories/{{name}}/{kind}s"


async def named(kind: Kind, artifacts: Artifacts, request: web.Request) -> Artifact:
    """The version that the request's path names. Raises NotFound."""
    path = request.match_info
    tenant = organization(request).id
    return await artifacts.run(artifacts.get, tenant, kind, path["name"], path["version"])


def _labels(fields: Fields) -> list[dict[str, str]] | None:
    return fields.pairs("labels", "key") if fields.has("labels") else None
