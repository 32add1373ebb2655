"""`/docs.json` of a deployment that sleeps: the OpenAPI document that its bento brought along."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import yaml
from aiohttp import web

from hotplate.cache.errors import CacheError
from hotplate.cache.manifest import Manifest
from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.errors import NotFound
from hotplate.platform.store.records import Artifact
from hotplate.platform.store.tasks import Tasks
from hotplate.serving.gateway.protocol.frames import framed

log = logging.getLogger("hotplate.docs")

FILE = "apis/openapi.yaml"
README = "README.md"
DOCUMENT_BYTES = 8 << 20
"""A longer document is not read, nor is one that is longer once its references are written out."""
LIMITS_BYTES = {FILE: DOCUMENT_BYTES, README: 3 << 20}
KEPT = 64
"""Documents in memory."""
HEAD = b"200 OK\r\nContent-Type: application/json\r\n"


class DocsRoutes:
    """Answers the gateways what a replica would answer."""

    def __init__(self, tasks: Tasks, blobs: BlobStore) -> None:
        self._tasks = tasks
        self._blobs = blobs
        self._cached: OrderedDict[str, bytes] = OrderedDict()

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/internal/docs", self.docs)]

    async def docs(self, request: web.Request) -> web.Response:
        """`?route=…&path=…`: the document as a frame; 404 where only a replica knows it."""
        route, path = request.query["route"], request.query["path"]
        bento = await self._tasks.run(self._tasks.answering_bento, route)
        mounted = (bento.manifest.get("schema") or {}).get("paths") or {}
        if not bento.files or path in mounted:
            raise NotFound(f"{route}: only the running service knows what is at {path}")
        document = self._cached.get(bento.files)
        if document is None:
            document = await asyncio.to_thread(self._read, bento)
            self._cached[bento.files] = document
            if len(self._cached) > KEPT:
                self._cached.popitem(last=False)
        return web.Response(body=framed(HEAD) + document)

    def _read(self, bento: Artifact) -> bytes:
        try:
            tree = self._blobs.get_manifest(bento.files)
            text, readme = self._text(tree, FILE), self._text(tree, README)
        except CacheError as error:
            raise NotFound(f"{bento.tag}: {FILE} cannot be read: {error}") from error
        if text is None:
            raise NotFound(f"{bento.tag} has no {FILE}, or one that is too large")
        try:
            return as_served(yaml.safe_load(text), bento.version, (readme or b"").decode())
        except (yaml.YAMLError, ValueError, TypeError, KeyError, RecursionError) as error:
            log.warning("%s: %s is not an OpenAPI document: %r", bento.tag, FILE, error)
            raise NotFound(f"{bento.tag}: {FILE} is not an OpenAPI document") from error

    def _text(self, tree: Manifest, path: str) -> bytes | None:
        """A file's content; None for one that is not there, or longer than BentoML would read."""
        entry = tree.get(path)
        if entry is None or entry.blob is None or entry.blob.size_bytes > LIMITS_BYTES[path]:
            return None
        return b"".join(self._blobs.chunks(entry.blob))


def as_served(document: Mapping[str, Any], version: str, readme: str) -> bytes:
    """The JSON that BentoML makes of the document.

    The file was written before the bento had its version and its README. Raises KeyError,
    ValueError, TypeError and RecursionError.
    """
    info = {**document["info"], "version": version, "description": readme}
    described = {**document, "info": info}
    pieces, size = [], 0
    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for piece in encoder.iterencode(described):
        pieces.append(piece)
        size += len(piece)
        if size > DOCUMENT_BYTES:
            raise ValueError(f"it has more than {DOCUMENT_BYTES} bytes")
    return "".join(pieces).encode()
