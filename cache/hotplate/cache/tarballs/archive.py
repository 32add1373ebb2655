"""Uploaded tars: taken apart into the blob store while they arrive, made again on the way out."""

from __future__ import annotations

import math
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack

from hotplate.cache.manifest import Manifest, ManifestEntry
from hotplate.cache.store.blobs import BlobStore, BlobWriter
from hotplate.cache.tarballs.archive_limits import ArchiveLimits
from hotplate.cache.tarballs.tar_header import BLOCK_BYTES
from hotplate.cache.tarballs.tar_reader import Event, MemberBegin, MemberEnd, TarReader

__all__ = ["ArchiveLimits", "pack", "packed_size", "unpack"]

_END = bytes(2 * BLOCK_BYTES)


def unpack(
    pieces: Iterable[bytes | bytearray | memoryview],
    blobs: BlobStore,
    limits: ArchiveLimits | None = None,
) -> Manifest:
    """Streams every file of a tar (plain or in gzip) into the store; memory does not grow with it.

    Nothing is visible in the store before the archive's end was seen, and nothing remains when this
    raises: BadArchive for an archive that is refused or cut short, and what the store or `pieces`
    raises. The manifest is sorted by path, and not stored.
    """
    reader = TarReader(limits)
    with ExitStack() as stack:
        intake = _Intake(blobs, stack)
        for piece in pieces:
            for event in reader.feed(piece):
                intake.take(event)
        reader.close()
        for writer in {writer.seal().digest: writer for writer in intake.writers}.values():
            writer.replace()
    return Manifest(tuple(sorted(intake.entries, key=lambda entry: entry.path)))


class _Intake:
    """The files so far, whole but not committed: `stack` discards them at its end."""

    def __init__(self, blobs: BlobStore, stack: ExitStack) -> None:
        self._blobs = blobs
        self._stack = stack
        self._file: MemberBegin | None = None
        self.writers: list[BlobWriter] = []
        self.entries: list[ManifestEntry] = []

    def take(self, event: Event) -> None:
        match event:
            case MemberBegin(folder=True):
                self.entries.append(ManifestEntry(event.path, event.mode, event.mtime))
            case MemberBegin():
                self._file = event
                self.writers.append(self._stack.enter_context(self._blobs.writer()))
            case memoryview():
                self.writers[-1].write(event)
            case MemberEnd() if self._file is not None:
                file, self._file = self._file, None
                blob = self.writers[-1].seal()
                self.entries.append(ManifestEntry(file.path, file.mode, file.mtime, blob))


def pack(manifest: Manifest, blobs: BlobStore) -> Iterator[bytes]:
    """The manifest's tar, always the same bytes, `packed_size` of them, in pieces of up to 8 MiB.

    Members lie under `./` in the manifest's order, in ustar, with a pax header where ustar is too
    narrow. Every chunk is verified before it leaves: raises UnknownBlob and ChunkCorrupt.
    """
    for entry in manifest.entries:
        yield _header(entry)
        if entry.blob is not None and entry.blob.size_bytes:
            yield from blobs.chunks(entry.blob)
            yield bytes(-entry.blob.size_bytes % BLOCK_BYTES)
    yield _END


def packed_size(manifest: Manifest) -> int:
    """How many bytes `pack` gives; reads nothing."""
    return sum(map(_packed_entry_bytes, manifest.entries)) + len(_END)


def _packed_entry_bytes(entry: ManifestEntry) -> int:
    size_bytes = entry.blob.size_bytes if entry.blob is not None else 0
    return len(_header(entry)) + size_bytes + -size_bytes % BLOCK_BYTES


def _header(entry: ManifestEntry) -> bytes:
    info = tarfile.TarInfo(f"./{entry.path}")
    info.mode = entry.mode
    info.mtime = math.floor(entry.mtime)
    if entry.mtime != info.mtime:
        # Left alone, tarfile may write 1e-07.
        info.pax_headers = {"mtime": f"{entry.mtime:.9f}"}
    if entry.blob is None:
        info.type = tarfile.DIRTYPE
    else:
        info.size = entry.blob.size_bytes
    return info.tobuf(tarfile.PAX_FORMAT)
