"""How the bytes of a bento or model come: in one request, or in parts at signed URLs.

Either way the tar lies in the blob store as the parts of an upload, which a row of the store names
until it is closed: a crash leaves nothing that the next start does not find. `spooling` brings a
body there, `transfers` and `links` serve the signed URLs, and `unpacking` makes of the parts the
manifest and chunks that agents stream, in the background, once all have come.
"""

from __future__ import annotations

import asyncio
from functools import partial

from aiohttp import web

from hotplate.cache.errors import CacheError, NoSpace
from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.bentocloud import views
from hotplate.platform.api.bentocloud.archives.spooling import spool
from hotplate.platform.api.bentocloud.archives.transfers import Transfers
from hotplate.platform.api.bentocloud.archives.unpacking import Unpacking
from hotplate.platform.api.bentocloud.artifacts import collection_path, named
from hotplate.platform.api.web.processing import say_processing
from hotplate.platform.api.web.requests import body
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.errors import Conflict, Invalid
from hotplate.platform.spec.fields import Fields
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Artifact, Kind, UploadRecord


class UploadRoutes:
    """Those of one kind."""

    def __init__(
        self,
        kind: Kind,
        store: Store,
        blobs: BlobStore,
        unpacking: Unpacking,
        transfers: Transfers,
        settings: ApiSettings,
    ) -> None:
        self._kind = kind
        self._store = store
        self._blobs = blobs
        self._unpacking = unpacking
        self._transfers = transfers
        self._settings = settings

    def routes(self) -> list[web.RouteDef]:
        one = collection_path(self._kind) + "/{version}/"
        return [
            web.patch(one + "start_upload", self.start),
            web.put(one + "upload", self.put_whole),
            web.patch(one + "presign_upload_url", self.presign_whole),
            web.patch(one + "start_multipart_upload", self.start_parts),
            web.patch(one + "presign_multipart_upload_url", self.presign_part),
            web.patch(one + "complete_multipart_upload", self.complete_parts),
            web.patch(one + "finish_upload", self.finish),
        ]

    async def settled(self, request: web.Request, artifact: Artifact) -> Artifact:
        """The version once what was uploaded for it is unpacked, whatever came of that."""
        try:
            return await self._unpacked(request, artifact)
        except (CacheError, Invalid):  # told to whoever uploaded it
            return await self._named(request)

    async def start(self, request: web.Request) -> web.Response:
        """`PATCH …/start_upload`: bytes will come; the version. Raises NotFound, NoSpace.

        What came before is unpacked first: no part is replaced while it is read.
        """
        artifact = await self.settled(request, await self._named(request))
        await self._check_room(await self._store.run(self._store.uploads.open, artifact.id))
        artifact = await self._store.run(self._store.uploads.start, artifact.id)
        return web.json_response(views.artifact(artifact))

    async def put_whole(self, request: web.Request) -> web.Response:
        """The whole tar; answered when it is unpacked and checked. No `finish_upload` follows."""
        artifact = await self._named(request)
        upload = await self._store.run(self._store.uploads.open, artifact.id, resume=False)
        try:
            await spool(request, self._blobs, upload.id, 1, self._settings)
        except BaseException as error:
            # Also when the handler is cancelled, as a server may do when the caller leaves.
            await self._unpacking.fail(
                upload, str(error) or "the upload was broken off; send it again"
            )
            raise
        return await self._unpack(request, upload, [1])

    async def presign_whole(self, request: web.Request) -> web.Response:
        """`PATCH …/presign_upload_url`: the version with a URL for the whole tar."""
        artifact = await self._named(request)
        upload = await self._store.run(self._store.uploads.open, artifact.id)
        url = await self._transfers.url(request, "put", artifact, upload.id, 1)
        return web.json_response(views.artifact(artifact, upload_url=url))

    async def start_parts(self, request: web.Request) -> web.Response:
        """`PATCH …/start_multipart_upload`: the version with the `upload_id` of its parts, and
        those that have arrived: who goes on with an upload need not send them again."""
        artifact = await self._named(request)
        upload = await self._store.run(self._store.uploads.open, artifact.id)
        arrived = await asyncio.to_thread(self._blobs.parts, upload.id)
        parts = [
            {"part_number": number, "size_bytes": size_bytes, "etag": etag}
            for number, (size_bytes, etag) in arrived.items()
        ]
        answer = views.artifact(artifact, upload_id=upload.id)
        return web.json_response(answer | {"parts": parts})

    async def presign_part(self, request: web.Request) -> web.Response:
        """`PATCH …/presign_multipart_upload_url`: a URL for one part of an upload.

        The body has `upload_id` and `part_number`, from 1. Raises Invalid, NotFound.
        """
        artifact = await self._named(request)
        fields = await body(request)
        upload = await self._upload(artifact, fields)
        number = fields.number("part_number", low=1)
        if number is None:
            raise Invalid("part_number: it is missing")
        await self._store.run(self._store.uploads.touch, upload.id)
        url = await self._transfers.url(request, "put", artifact, upload.id, number)
        answer = views.artifact(artifact, upload_url=url, upload_id=upload.id)
        return web.json_response(answer)

    async def complete_parts(self, request: web.Request) -> web.Response:
        """All parts are there: unpacking begins."""
        artifact = await self._named(request)
        fields = await body(request)
        upload = await self._upload(artifact, fields)
        self._transfers.check_complete(upload.id)
        arrived = await asyncio.to_thread(self._blobs.parts, upload.id)
        return await self._unpack(request, upload, _checked_parts(fields, arrived))

    async def finish(self, request: web.Request) -> web.Response:
        """The client's last word. A success that is none here is refused with the reason."""
        artifact = await self._named(request)
        fields = await body(request)
        if fields.choice("status", ("success", "failed")) == "failed":
            await self._make_room(artifact)
            reason = fields.text("reason", "") or "the client gave up the upload"
            artifact = await self._store.run(self._store.uploads.fail, artifact.id, reason)
            return web.json_response(views.artifact(artifact))
        if artifact.dev and not artifact.files:  # its files come one by one, to its deployment
            artifact = await self._store.run(self._store.uploads.finish, artifact.id, "", 0)
            return web.json_response(views.artifact(artifact))
        if not self._unpacking.busy(artifact.id) and artifact.upload_status == "uploading":
            await self._unpack_what_is_there(artifact)
        artifact = await self._unpacked(request, artifact)
        if artifact.upload_status == "failed":
            raise Invalid(f"{self._kind} '{artifact.tag}': {artifact.upload_finished_reason}")
        if not artifact.usable and not self._unpacking.busy(artifact.id):
            raise Invalid(f"{self._kind} '{artifact.tag}': nothing was uploaded; push it again")
        return web.json_response(views.artifact(artifact))

    async def _check_room(self, upload: UploadRecord) -> None:
        """Says at once what a long upload would say at its end. Raises NoSpace.

        Its parts and its files are both there for a while.
        """
        arrived = await asyncio.to_thread(self._blobs.parts, upload.id)
        there_bytes = sum(part_bytes for part_bytes, _ in arrived.values())
        in_all_bytes = 2 * int(upload.artifact.manifest.get("size_bytes", 0))
        self._blobs.check_room(max(0, in_all_bytes - there_bytes))

    async def _make_room(self, artifact: Artifact) -> None:
        """The client gave it up. Its parts stay for the next try, unless that has no room."""
        upload = await self._store.run(self._store.uploads.open, artifact.id)
        try:
            await self._check_room(upload)
        except NoSpace:
            await self._unpacking.drop(upload)

    async def _unpack_what_is_there(self, artifact: Artifact) -> None:
        """A tar that came in one piece to a signed URL, or whose completion a restart cut off."""
        upload = await self._store.run(self._store.uploads.open, artifact.id)
        if arrived := await asyncio.to_thread(self._blobs.parts, upload.id):
            self._unpacking.start(upload, sorted(arrived))

    async def _unpack(
        self, request: web.Request, upload: UploadRecord, parts: list[int]
    ) -> web.Response:
        self._unpacking.start(upload, parts)
        artifact = await self._unpacked(request, upload.artifact)
        return web.json_response(views.artifact(artifact, upload_id=upload.id))

    async def _unpacked(self, request: web.Request, artifact: Artifact) -> Artifact:
        longer = partial(say_processing, request)
        return await self._unpacking.wait(artifact, self._settings.unpack_wait_s, longer)

    async def _named(self, request: web.Request) -> Artifact:
        return await named(self._kind, self._store.artifacts, request)

    async def _upload(self, artifact: Artifact, fields: Fields) -> UploadRecord:
        upload = await self._store.run(self._store.uploads.get, fields.text("upload_id"))
        if upload is None or upload.artifact.id != artifact.id:
            raise Conflict(f"{self._kind} '{artifact.tag}': that upload has ended; start it again")
        return upload


def _checked_parts(fields: Fields, arrived: dict[int, tuple[int, str]]) -> list[int]:
    """The part numbers 1, 2, … as the client lists them, each as it arrived. Raises Invalid."""
    numbers: list[int] = []
    for item in sorted(fields.items("parts"), key=lambda part: part.number("part_number", 0) or 0):
        number = item.number("part_number", low=1)
        if number != len(numbers) + 1:
            raise Invalid(f"{item.at('part_number')}: part {len(numbers) + 1} is missing")
        if number not in arrived:
            raise Invalid(f"{item.at('part_number')}: part {number} has not arrived; send it again")
        if item.text("etag").strip('"') != arrived[number][1]:
            raise Invalid(f"{item.at('etag')}: part {number} was replaced; send it again")
        numbers.append(number)
    if not numbers:
        raise Invalid("parts: the list is empty")
    return numbers
