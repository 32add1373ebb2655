"""An upload's body on its way to the blob store, piece by piece."""

from __future__ import annotations

import asyncio
from collections import deque

from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError

from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.tarballs.tar_reader import TarReader
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.errors import BodyCut

WRITE_BYTES = 1 << 20
"""Handed to a thread at once: small enough for memory, large enough to be worth the switch."""


async def spool(
    request: web.Request, blobs: BlobStore, upload_id: str, number: int, settings: ApiSettings
) -> str:
    """Writes the body as one part and returns its etag; a part counts only when it is whole.

    Raises BodyCut where the body ends early or stands still. The first part is the beginning of an
    archive: raises BadArchive at the first byte of it that is refused, and reads no further.
    """
    reader = TarReader(settings.archive) if number == 1 else None
    with await asyncio.to_thread(blobs.part_writer, upload_id, number) as part:

        def take(piece: bytes) -> None:
            if reader is not None:
                deque(reader.feed(piece), maxlen=0)
            part.write(piece)

        received = 0
        while piece := await _next_piece(request, received, settings.body_idle_s):
            await asyncio.to_thread(take, piece)
            received += len(piece)
        if request.content_length not in (None, received):
            raise _cut(request, received)
        return await asyncio.to_thread(part.commit)


async def _next_piece(request: web.Request, received: int, idle_s: float) -> bytes:
    """Up to about `WRITE_BYTES`; empty at the end."""
    piece = bytearray()
    try:
        while len(piece) < WRITE_BYTES:
            async with asyncio.timeout(idle_s):
                data = await request.content.readany()
            if not data:
                break
            piece += data
    except (ConnectionError, ClientPayloadError, HttpProcessingError, TimeoutError) as exc:
        raise _cut(request, received + len(piece)) from exc
    return bytes(piece)


def _cut(request: web.Request, received: int) -> BodyCut:
    length = request.content_length
    whole = "" if length is None else f" of {length}"
    return BodyCut(f"the upload ended after {received}{whole} bytes; send it again")
