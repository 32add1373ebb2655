"""Multipart uploads: parts that arrive in any order, in parallel and more than once.

A part's file is its content followed by the hex digest of it, so that content and etag appear
together, in one atomic step, on every kind of storage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from blake3 import blake3

from hotplate.cache.errors import ChunkCorrupt, UnknownPart
from hotplate.cache.store.storage import PartialObject, Storage

PART_NUMBER_MAX = 99_999
_ETAG_BYTES = 64
_PIECE_BYTES = 1 << 20
_FETCH_BYTES = 8 << 20
"""How much is read from the storage at once: a bucket takes as long for 1 MiB as for 8."""
_UPLOAD_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_NUMBER = re.compile(r"[0-9]{5}")


class Parts:
    """The parts under one storage. Upload ids are checked before they become a path."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def writer(self, upload_id: str, number: int) -> PartWriter:
        """Raises UnknownPart for an invalid id or number."""
        return PartWriter(self._storage, self._path(upload_id, number))

    def arrived(self, upload_id: str) -> dict[int, tuple[int, str]]:
        """(bytes, etag) by number."""
        found = {}
        for name, size_bytes in sorted(self._storage.sizes(self._folder(upload_id)).items()):
            if not _NUMBER.fullmatch(name):
                continue
            etag = self._etag(self._path(upload_id, int(name)), size_bytes)
            found[int(name)] = (size_bytes - _ETAG_BYTES, etag)
        return found

    def read(self, upload_id: str, numbers: Iterable[int]) -> Iterator[bytes]:
        """Pieces of at most 1 MiB. Raises UnknownPart, and ChunkCorrupt at a part's end."""
        for number in numbers:
            path = self._path(upload_id, number)
            stored_bytes = self._storage.size(path)
            if stored_bytes is None:
                raise UnknownPart(f"upload {upload_id!r} has no part {number}; send it again")
            digest = blake3()
            for piece in self._content(path, stored_bytes - _ETAG_BYTES):
                digest.update(piece)
                yield piece
            if digest.hexdigest() != self._etag(path, stored_bytes):
                raise ChunkCorrupt(f"part {number} of upload {upload_id!r} is not what arrived")

    def drop(self, upload_id: str) -> None:
        self._storage.remove_folder(self._folder(upload_id))

    def _content(self, path: str, size_bytes: int) -> Iterator[bytes]:
        for offset in range(0, size_bytes, _FETCH_BYTES):
            length = min(_FETCH_BYTES, size_bytes - offset)
            fetched = self._storage.read(path, offset, length) or b""
            for start in range(0, len(fetched), _PIECE_BYTES):
                yield fetched[start : start + _PIECE_BYTES]

    def _etag(self, path: str, stored_bytes: int) -> str:
        """The stored etag; anything else, equal to no digest, where the file is damaged or gone."""
        etag = self._storage.read(path, max(0, stored_bytes - _ETAG_BYTES), _ETAG_BYTES)
        return (etag or b"").decode("ascii", "replace")

    def _folder(self, upload_id: str) -> str:
        if not _UPLOAD_ID.fullmatch(upload_id):
            raise UnknownPart(f"{upload_id[:128]!r} is no upload id")
        return f"parts/{upload_id}"

    def _path(self, upload_id: str, number: int) -> str:
        if not 1 <= number <= PART_NUMBER_MAX:
            raise UnknownPart(f"{number} is no part number (1 to {PART_NUMBER_MAX})")
        return f"{self._folder(upload_id)}/{number:05d}"


class PartWriter(PartialObject):
    """One part on its way in; a `with` block discards it at its end unless it was committed."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._path = path
        self._upload = storage.create()
        self._digest = blake3()

    def discard(self) -> None:
        self._upload.discard()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        self._upload.write(view)
        self._digest.update(view)

    def commit(self) -> str:
        """Puts the part in place, in one step, and returns its etag: 64 hex digits."""
        etag = self._digest.hexdigest()
        self._upload.write(etag.encode())
        self._upload.close()
        self._upload.publish(self._path)
        return etag
