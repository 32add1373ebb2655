"""How the files of a bento or model go out again: as the tar that they came in."""

from __future__ import annotations

from aiohttp import web

from hotplate.platform.api.bentocloud import views
from hotplate.platform.api.bentocloud.archives.transfers import Transfers
from hotplate.platform.api.bentocloud.artifacts import collection_path, named
from hotplate.platform.errors import NotFound
from hotplate.platform.store.artifacts import Artifacts
from hotplate.platform.store.records import Artifact, Kind


class DownloadRoutes:
    """Those of one kind."""

    def __init__(self, kind: Kind, artifacts: Artifacts, transfers: Transfers) -> None:
        self._kind = kind
        self._artifacts = artifacts
        self._transfers = transfers

    def routes(self) -> list[web.RouteDef]:
        one = collection_path(self._kind) + "/{version}/"
        return [
            web.patch(one + "presign_download_url", self.presign),
            web.get(one + "download", self.download),
        ]

    async def presign(self, request: web.Request) -> web.Response:
        """A model of Hugging Face has no files here: its URL stays empty."""
        artifact = await named(self._kind, self._artifacts, request)
        if artifact.hugging_face:
            return web.json_response(views.artifact(artifact))
        url = await self._transfers.url(request, "get", artifact, self._files(artifact))
        return web.json_response(views.artifact(artifact, download_url=url))

    async def download(self, request: web.Request) -> web.StreamResponse:
        """`GET …/download`: the tar of the version's files. Raises NotFound."""
        artifact = await named(self._kind, self._artifacts, request)
        return await self._transfers.send(request, self._files(artifact))

    def _files(self, artifact: Artifact) -> str:
        if not artifact.files:
            raise NotFound(
                f"{self._kind} '{artifact.tag}': its files are not here "
                f"(upload {artifact.upload_status}); push it again"
            )
        return artifact.files
