"""What a control plane without an agent knows of a bento: its description and its requirements.

They are read from the blob store once for each bento and kept in a folder. Everything else of a
bento is for its pods, which have it from their node's agent: of those files only the digests are
known here, as the bento's manifest has them.
"""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from hotplate.cache.errors import CacheError, UnknownBlob, UnknownManifest
from hotplate.cache.manifest import CHUNK_BYTES, Blob, Manifest, ManifestEntry
from hotplate.cache.origins.hubs import Hubs
from hotplate.cache.store.blobs import BlobStore
from hotplate.serving.replica.bento import Bento, read_bento
from hotplate.serving.replica.environments.spec import REQUIREMENTS_BYTES
from hotplate.serving.replica.errors import FilesUnavailable

DESCRIPTION = "bento.yaml"
ENVIRONMENT = "env/"
"""The folder of what its environment is made from, but for wheels of its own."""
KEPT = 1000
"""The descriptions of so many bentos stay; those that nobody has asked for longest go."""
_CHUNKS = REQUIREMENTS_BYTES // CHUNK_BYTES + 1
"""More is read of no file: who reads one that was cut refuses it for its size."""


class Bentos:
    """Those of one blob store."""

    def __init__(self, blobs: BlobStore, folder: Path, hubs: Hubs, kept: int = KEPT) -> None:
        """`folder` is this process's alone; bentos may name models of `hubs`."""
        self._blobs, self._folder, self._hubs, self._kept = blobs, folder, hubs, kept
        self._known: dict[str, Bento] = {}

    async def get(self, manifest: str) -> Bento:
        """The bento of that manifest. Its folder has its description and its requirements, and
        `files` all the rest by name. Raises `FilesUnavailable` and `BentoUnusable`."""
        bento = self._known.pop(manifest, None)
        if bento is None:
            bento = await asyncio.to_thread(self._read, manifest)
        self._known[manifest] = bento  # at the end: those that nobody asks for come first
        while len(self._known) > self._kept:
            gone = self._known.pop(next(iter(self._known)))
            await asyncio.to_thread(shutil.rmtree, gone.folder, ignore_errors=True)
        return bento

    def _read(self, manifest: str) -> Bento:
        try:
            found = self._blobs.get_manifest(manifest)
            folder = self._folder / manifest
            if not folder.is_dir():
                self._write(found, folder)
        except CacheError as error:
            gone = isinstance(error, (UnknownManifest, UnknownBlob))
            raise FilesUnavailable(str(error), retry=not gone) from error
        return read_bento(folder, self._hubs, dict(_digests(found)))

    def _write(self, found: Manifest, folder: Path) -> None:
        """All of it or nothing: another process was perhaps killed at it."""
        draft = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
        for entry in found.entries:
            if entry.path == DESCRIPTION or entry.path.startswith(ENVIRONMENT):
                self._write_file(entry, draft / entry.path)
        draft.mkdir(parents=True, exist_ok=True)
        try:
            draft.rename(folder)
        except OSError:  # somebody else has asked for it too
            shutil.rmtree(draft, ignore_errors=True)
            if not folder.is_dir():
                raise

    def _write_file(self, entry: ManifestEntry, path: Path) -> None:
        if entry.blob is None:
            return
        offset, length = entry.span
        content = b"".join(islice(self._blobs.chunks(entry.blob), _CHUNKS))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content[offset : offset + length])


def _digests(found: Manifest) -> Iterator[tuple[str, str]]:
    for entry in found.entries:
        if entry.blob is not None:
            yield entry.path, _digest(entry.blob, entry)


def _digest(blob: Blob, entry: ManifestEntry) -> str:
    return blob.digest if entry.part is None else f"{blob.digest}:{entry.part[0]}"
