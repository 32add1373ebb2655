"""A build's result on its way to the blob store: blobs, then their manifest, then the note that
names it. Killed before the last, nobody sees any of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from functools import partial

from hotplate.cache.errors import ChunkCorrupt, UnknownManifest
from hotplate.cache.manifest import CHUNK_BYTES, Blob, Manifest
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.tiers.disk import DiskTier
from hotplate.cache.volumes.ticket import Ticket

SMALL, LARGE = 6, 2
"""Uploads at a time, of blobs of one chunk and of others: the client of a bucket has up to three
parts of 64 MiB in memory for each of the latter, and an agent has 1 GiB for all that it does."""

Beat = Callable[[], None]


class Publication:
    """One ticket's. Blocks; every method raises CacheError."""

    def __init__(self, store: BlobStore, ticket: Ticket) -> None:
        self._store = store
        self._ticket = ticket

    def earlier(self) -> str | None:
        """The manifest that is published already, by whichever build."""
        note = self._store.get_note(self._ticket.note)
        digest = str(note.get("manifest", "")) if note is not None else ""
        if not digest:
            return None
        try:
            return self._store.get_manifest(digest).digest
        except (UnknownManifest, ChunkCorrupt):
            return None  # it was removed: this build makes it anew

    def publish(self, manifest: Manifest, blobs: Iterable[Blob], disk: DiskTier, beat: Beat) -> str:
        """Stores the blobs, which the disk has, and the rest; the manifest that is published from
        now on, another build's if that was first. `beat` is called again and again."""
        with self._store.hold() as hold:

            def beating() -> None:
                beat()
                hold.renew()

            self._upload_all(blobs, partial(self._upload, disk=disk, beat=beating))
            if (earlier := self.earlier()) is not None:
                return earlier
            digest = self._store.put_manifest(manifest)
            self._store.put_note(self._ticket.note, {**self._ticket.about, "manifest": digest})
            return digest

    def _upload_all(self, blobs: Iterable[Blob], upload: Callable[[Blob], None]) -> None:
        with ThreadPoolExecutor(SMALL) as small, ThreadPoolExecutor(LARGE) as large:
            uploads: list[Future[None]] = [
                (small if len(blob.chunks) <= 1 else large).submit(upload, blob) for blob in blobs
            ]
            done, others = wait(uploads, return_when=FIRST_EXCEPTION)
            for each in others:
                each.cancel()
            for each in done:
                each.result()

    def _upload(self, blob: Blob, disk: DiskTier, beat: Beat) -> None:
        beat()
        if self._store.has(blob):
            return
        with open(disk.lend(blob.digest), "rb") as file, self._store.writer() as writer:
            while piece := file.read(CHUNK_BYTES):
                beat()
                writer.write(piece)
            if writer.seal() != blob:
                raise ChunkCorrupt(
                    f"disk tier: blob {blob.digest} was damaged while it was published; ask again"
                )
            writer.commit()
