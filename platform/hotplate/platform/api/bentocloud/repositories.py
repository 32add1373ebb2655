"""Repositories of bentos and of models."""

from __future__ import annotations

from aiohttp import web

from hotplate.platform.api.bentocloud import views
from hotplate.platform.api.web.requests import body, organization
from hotplate.platform.spec.names import check_name
from hotplate.platform.store.artifacts import Artifacts
from hotplate.platform.store.records import Kind, Repository


class RepositoryRoutes:
    """Those of one kind."""

    def __init__(self, kind: Kind, artifacts: Artifacts) -> None:
        self._kind = kind
        self._artifacts = artifacts

    def routes(self) -> list[web.RouteDef]:
        root = f"/api/v1/{self._kind}_repositories"
        return [web.post(root, self.create), web.get(root + "/{name}", self.get)]

    async def create(self, request: web.Request) -> web.Response:
        """Answers the one that is there, too: clients that push at once race to make it."""
        fields = await body(request)
        name = check_name(fields.at("name"), fields.text("name"))
        repository = await self._artifacts.run(
            self._artifacts.ensure_repository,
            organization(request).id,
            self._kind,
            name,
            fields.text("description", ""),
        )
        return await self._answer(repository)

    async def get(self, request: web.Request) -> web.Response:
        """`GET …/{name}`: the repository with its latest version. Raises NotFound."""
        repository = await self._artifacts.run(
            self._artifacts.repository,
            organization(request).id,
            self._kind,
            request.match_info["name"],
        )
        return await self._answer(repository)

    async def _answer(self, repository: Repository) -> web.Response:
        latest = await self._artifacts.run(
            self._artifacts.latest,
            repository.organization_id,
            self._kind,
            repository.name,
        )
        return web.json_response(views.repository(repository, latest))
