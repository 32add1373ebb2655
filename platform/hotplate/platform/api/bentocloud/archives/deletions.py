"""Deleting versions of bentos and models."""

from __future__ import annotations

from aiohttp import web

from hotplate.platform.api.bentocloud import views
from hotplate.platform.api.bentocloud.archives.unpacking import Unpacking
from hotplate.platform.api.bentocloud.artifacts import collection_path, named
from hotplate.platform.errors import Conflict
from hotplate.platform.store.artifacts import Artifacts
from hotplate.platform.store.records import Kind


class DeletionRoutes:
    """Those of one kind. Files that only this version names go when the origin is swept."""

    def __init__(self, kind: Kind, artifacts: Artifacts, unpacking: Unpacking) -> None:
        self._kind = kind
        self._artifacts = artifacts
        self._unpacking = unpacking

    def routes(self) -> list[web.RouteDef]:
        return [web.delete(collection_path(self._kind) + "/{version}", self.delete)]

    async def delete(self, request: web.Request) -> web.Response:
        """`DELETE …/{version}`: the version that was. Raises NotFound, and Conflict while a kept
        revision needs it."""
        artifact = await named(self._kind, self._artifacts, request)
        if self._unpacking.busy(artifact.id):
            raise Conflict(
                f"{self._kind} '{artifact.tag}' is just being uploaded; delete it when that is over"
            )
        await self._artifacts.run(self._artifacts.delete, artifact.id)
        return web.json_response(views.artifact(artifact))
