"""Signed URLs: made for the client, and what happens at them. They need no token."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from aiohttp import web

from hotplate.cache.errors import BadArchive, CacheError, NoSpace
from hotplate.cache.manifest import Manifest
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.tarballs import archive
from hotplate.platform.api.bentocloud.archives.links import SignedLink, sign, verify
from hotplate.platform.api.bentocloud.archives.spooling import spool
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.errors import Conflict, LinkExpired, NotFound
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Artifact

logger = logging.getLogger("hotplate.api")

PATH = "/transfers/"
KEY = "transfers"
WRITE_BYTES = 256 << 10
"""Handed to a connection at once: what a slow reader has not taken is kept until it has."""

REMEMBERED = 1_000
"""Uploads whose refused parts are remembered: most of them nobody completes."""


class Transfers:
    """Serves the signed URLs of all kinds; refusals of parts are kept for the upload's end."""

    def __init__(self, store: Store, blobs: BlobStore, settings: ApiSettings) -> None:
        self._store = store
        self._blobs = blobs
        self._settings = settings
        self._refused: dict[str, dict[int, CacheError]] = {}
        """Why parts were refused that have not arrived since, by upload."""
        self._sending = asyncio.Semaphore(settings.downloads_at_once)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.put(PATH + "{link}", self.put),
            web.get(PATH + "{link}", self.get),
            web.route("*", PATH + "{link}", self.refuse),
        ]

    async def url(
        self, request: web.Request, action: str, artifact: Artifact, subject: str, part: int = 0
    ) -> str:
        """A URL on the address by which the caller reaches us, good as long as the version is
        there."""
        expires_at = datetime.now(UTC).timestamp() + self._settings.link_life_s
        key = await self._store.run(self._store.identities.key, KEY)
        link = sign(SignedLink(action, subject, part, expires_at, artifact.id, artifact.uid), key)
        return f"{self._settings.origin(request)}{PATH}{link}"

    async def put(self, request: web.Request) -> web.Response:
        """One part. The client needs its `ETag` and hands it back when all parts are there."""
        link = await self._link(request, "put")
        if await self._store.run(self._store.uploads.get, link.subject) is None:
            raise Conflict("the upload has ended; start it again")
        try:
            etag = await spool(request, self._blobs, link.subject, link.part, self._settings)
        except (NoSpace, BadArchive) as error:
            self._refused.setdefault(link.subject, {})[link.part] = error
            if len(self._refused) > REMEMBERED:
                del self._refused[next(iter(self._refused))]
            raise
        if refused := self._refused.get(link.subject):
            refused.pop(link.part, None)
        return web.Response(headers={"ETag": f'"{etag}"'})

    def check_complete(self, upload_id: str) -> None:
        """Raises what a part was refused with that has not arrived since: NoSpace or BadArchive.

        The client goes on to complete such an upload, and shows only the last answer.
        """
        for error in self._refused.pop(upload_id, {}).values():
            raise error

    async def get(self, request: web.Request) -> web.StreamResponse:
        """`GET` of a signed URL: the tar of a manifest. Raises LinkExpired and NotFound."""
        return await self.send(request, (await self._link(request, "get")).subject)

    async def refuse(self, request: web.Request) -> web.StreamResponse:
        """Any other method. Raises LinkExpired."""
        raise LinkExpired(f"no transfer URL is for {request.method:.20}; ask for one to GET or PUT")

    async def send(self, request: web.Request, files: str) -> web.StreamResponse:
        """The tar of a manifest, made on the fly; waits while too many others are sent."""
        async with self._sending:
            return await self._send(request, files)

    async def _send(self, request: web.Request, files: str) -> web.StreamResponse:
        manifest = await asyncio.to_thread(self._blobs.get_manifest, files)
        response = web.StreamResponse()
        response.content_type = "application/octet-stream"
        response.content_length = archive.packed_size(manifest)
        await response.prepare(request)
        try:
            async for piece in self._pieces(manifest):
                for start in range(0, len(piece), WRITE_BYTES):
                    await response.write(memoryview(piece)[start : start + WRITE_BYTES])
        except CacheError:
            # Too late for a status: a connection that breaks before `Content-Length` says it.
            logger.exception("sending %s was broken off", files)
            if request.transport is not None:
                request.transport.abort()
        return response

    async def _link(self, request: web.Request, action: str) -> SignedLink:
        key = await self._store.run(self._store.identities.key, KEY)
        now = datetime.now(UTC).timestamp()
        link = verify(request.match_info["link"], action, key, now)
        exists = self._store.artifacts.exists
        if not await self._store.run(exists, link.version_id, link.version_uid):
            raise NotFound("the bento or model of the transfer URL was deleted; push it again")
        return link

    async def _pieces(self, manifest: Manifest) -> AsyncIterator[bytes]:
        pieces = archive.pack(manifest, self._blobs)
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            yield piece
