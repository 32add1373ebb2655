"""The blob store: all that was pushed, each file's content once.

<url>/blobs/<digest[:2]>/<digest>         a file's content, whole
<url>/manifests/<digest>.json             a tree of files
<url>/environments/<key>.json, …          which manifest an environment or a cache is
<url>/parts/<upload id>/<number>          a multipart upload that is under way
<url>/holds/<random>                      somebody copies, or puts files here: nothing is removed
<url>/removals/<random>                   somebody removes: nobody begins to copy
<url>/hotplate.json                       the installation that this is the store of
<url>/incoming/<random>                   what is being written and has no name yet
<url>/replaced/<random>                   a blob that was pushed again, for a while (a folder only)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from blake3 import blake3

from hotplate.cache.errors import ChunkCorrupt, UnknownBlob, UnknownManifest
from hotplate.cache.manifest import CHUNK_BYTES, Blob, Manifest, chunk_digest
from hotplate.cache.store.contents import StoreContents
from hotplate.cache.store.holds import Hold, Holds, Removal
from hotplate.cache.store.parts import Parts, PartWriter
from hotplate.cache.store.paths import DIGEST, blob_path, manifest_path, note_path
from hotplate.cache.store.storage import PartialObject, Storage, open_storage


class BlobStore:
    """Blobs, manifests and parts under one fsspec URL. Synchronous, safe from many threads.

    Every method may raise OriginUnavailable, those that write NoSpace as well.
    """

    def __init__(self, url: str, disk_reserve_bytes: int = 0, **fsspec_options: Any) -> None:
        """`disk_reserve_bytes` is left free where the store is a folder; 0 = the usual."""
        self._storage = open_storage(url, disk_reserve_bytes, **fsspec_options)
        self._parts = Parts(self._storage)
        self.holds = Holds(self._storage)
        self.contents = StoreContents(self._storage)
        self.url = self._storage.url
        """Without credentials."""

    def writer(self) -> BlobWriter:
        """A new blob; used with `with`, it is gone on leaving unless committed."""
        return BlobWriter(self._storage)

    def has(self, blob: Blob) -> bool:
        return self._storage.size(blob_path(blob.digest)) == blob.size_bytes

    def read(self, blob: Blob, offset: int, length: int) -> bytes:
        """`length` bytes from `offset`, not verified (only whole chunks have a digest).

        Raises ValueError beyond the blob, UnknownBlob, and ChunkCorrupt where the stored file is
        shorter than the blob.
        """
        if offset < 0 or length < 0 or offset + length > blob.size_bytes:
            raise ValueError(f"{length} bytes at {offset} of a blob of {blob.size_bytes} bytes")
        if length == 0:
            return b""
        data = self._storage.read(blob_path(blob.digest), offset, length)
        if data is None:
            raise UnknownBlob(f"no blob {blob.digest} at {self.url}; push it again")
        if len(data) != length:
            raise ChunkCorrupt(f"blob {blob.digest} at {self.url} is cut short; push it again")
        return data

    def chunks(self, blob: Blob) -> Iterator[bytes]:
        """The blob's chunks in order, each verified. Raises UnknownBlob and ChunkCorrupt."""
        for index, digest in enumerate(blob.chunks):
            data = self.read(blob, *blob.span(index))
            if chunk_digest(data) != digest:
                raise ChunkCorrupt(
                    f"chunk {index} of blob {blob.digest} at {self.url} is corrupt; push it again"
                )
            yield data

    def replace_manifest(self, manifest: Manifest) -> str:
        """As `put_manifest`, for the same room as `BlobWriter.replace`."""
        self._storage.set_aside(manifest_path(manifest.digest))
        return self.put_manifest(manifest)

    def put_manifest(self, manifest: Manifest) -> str:
        """Keeps the manifest and returns its digest. Its blobs are to be there before it."""
        data = manifest.to_bytes()
        with self._storage.create() as upload:
            upload.write(data)
            upload.close()
            upload.publish(manifest_path(manifest.digest))
        return manifest.digest

    def get_manifest(self, digest: str) -> Manifest:
        """Raises UnknownManifest (also for what is no digest), and ChunkCorrupt."""
        unknown = UnknownManifest(f"no manifest {digest[:64]!r} at {self.url}; push it again")
        if not DIGEST.fullmatch(digest):
            raise unknown
        data = self._storage.read(manifest_path(digest))
        if data is None:
            raise unknown
        if blake3(data).hexdigest() != digest:
            raise ChunkCorrupt(f"manifest {digest} at {self.url} is corrupt; push it again")
        return Manifest.from_bytes(data)

    def put_note(self, name: str, value: Mapping[str, Any]) -> None:
        """Keeps a few facts under a name like `environments/<key>`, in place of earlier ones."""
        with self._storage.create() as upload:
            upload.write(json.dumps(value, sort_keys=True).encode())
            upload.close()
            upload.publish(note_path(name))

    def get_note(self, name: str) -> dict[str, Any] | None:
        """The facts of that name; None when there are none that can be read."""
        data = self._storage.read(note_path(name))
        try:
            value = json.loads(data) if data is not None else None
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    def part_writer(self, upload_id: str, number: int) -> PartWriter:
        """A part of a multipart upload; replaces one of that number when committed."""
        return self._parts.writer(upload_id, number)

    def parts(self, upload_id: str) -> dict[int, tuple[int, str]]:
        """(bytes, etag) of every part that has arrived, by number."""
        return self._parts.arrived(upload_id)

    def read_parts(self, upload_id: str, numbers: Iterable[int]) -> Iterator[bytes]:
        """The parts' content in the order given, in pieces of at most 1 MiB.

        Raises UnknownPart, and ChunkCorrupt at the end of a part that is not what arrived.
        """
        return self._parts.read(upload_id, numbers)

    def drop_parts(self, upload_id: str) -> None:
        """Removes all parts of the upload; nothing happens when there are none."""
        self._parts.drop(upload_id)

    def check_room(self, size_bytes: int) -> None:
        """Raises NoSpace unless `size_bytes` more fit; a bucket always has space."""
        self._storage.check_room(size_bytes)

    def drop_unfinished(self) -> None:
        """Removes what a killed writer left in `incoming/`; to be called first, by the only one."""
        self._storage.drop_unfinished()

    def drop_replaced(self, before: datetime) -> None:
        """Removes the blobs that were pushed again before then."""
        self._storage.drop_replaced(before)

    def hold(self) -> Hold:
        """For the length of a `with` block nothing is removed."""
        return Hold(self.holds, _now)

    def removal(self) -> Removal:
        """For the length of a `with` block, if it says so, no file is put here or copied."""
        return Removal(self.holds, _now)

    def used_bytes(self) -> int:
        """Bytes of everything in the store. Asks for every file's size: minutes on a bucket."""
        return self._storage.used_bytes()


class BlobWriter(PartialObject):
    """One blob on its way in; its chunks' digests are taken as it passes."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._upload = storage.create()
        self._size_bytes = 0
        self._digests: list[str] = []
        self._chunk: blake3 | None = None
        self._chunk_bytes = 0
        self._blob: Blob | None = None

    def discard(self) -> None:
        self._upload.discard()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        rest = memoryview(data)
        self._upload.write(rest)
        self._size_bytes += rest.nbytes
        while rest.nbytes:
            piece = rest[: CHUNK_BYTES - self._chunk_bytes]
            rest = rest[piece.nbytes :]
            self._chunk = self._chunk or blake3()
            self._chunk.update(piece)
            self._chunk_bytes += piece.nbytes
            if self._chunk_bytes == CHUNK_BYTES:
                self._end_chunk()

    def seal(self) -> Blob:
        """Ends the writing. The bytes are safe, but nobody sees them before `commit`."""
        if self._blob is None:
            self._end_chunk()
            self._upload.close()
            self._blob = Blob(self._size_bytes, tuple(self._digests))
        return self._blob

    def commit(self) -> Blob:
        """Makes it a blob of the store, at once. One that is there already is kept instead."""
        blob = self.seal()
        if self._storage.size(blob_path(blob.digest)) == blob.size_bytes:
            self._upload.discard()
        else:
            self._upload.publish(blob_path(blob.digest))
        return blob

    def replace(self) -> Blob:
        """As `commit`, by the same steps, in the same time and for the same room whether or not it
        is there already: a push must not tell who else has the bytes. In a folder, what was there
        stays beside it until `drop_replaced`."""
        blob = self.seal()
        path = blob_path(blob.digest)
        self._storage.set_aside(path)
        self._upload.publish(path)
        return blob

    def _end_chunk(self) -> None:
        if self._chunk is not None:
            self._digests.append(self._chunk.hexdigest())
            self._chunk, self._chunk_bytes = None, 0


def _now() -> datetime:
    return datetime.now(UTC)
