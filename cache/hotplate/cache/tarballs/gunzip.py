"""Gzip undone piece by piece, with a bound on how much may come out of how little."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from hotplate.cache.errors import BadArchive

GZIP_MAGIC = b"\x1f\x8b"
_PIECE_BYTES = 1 << 20
_GRACE_BYTES = 1 << 20
"""Small archives are mostly padding, which shrinks 1000:1; the ratio counts from here on."""


class Gunzip:
    """Fed with a gzip file in pieces of any size, gives its content in pieces of at most 1 MiB."""

    def __init__(self, max_ratio: int) -> None:
        self._max_ratio = max_ratio
        self._zlib = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        self._taken_bytes = 0
        self._given_bytes = 0

    @property
    def finished(self) -> bool:
        return self._zlib.eof

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """Raises BadArchive for damaged data, for data after the end and above the ratio."""
        rest = bytes(data)
        while rest:
            if self.finished:
                raise BadArchive("the archive has data after its gzip end")
            try:
                plain = self._zlib.decompress(rest, _PIECE_BYTES)
            except zlib.error as exc:
                raise BadArchive("the archive's gzip data are damaged; send it again") from exc
            unused = self._zlib.unused_data if self.finished else self._zlib.unconsumed_tail
            self._taken_bytes += len(rest) - len(unused)
            self._given_bytes += len(plain)
            self._check_ratio()
            yield plain
            rest = unused

    def _check_ratio(self) -> None:
        if self._given_bytes > self._taken_bytes * self._max_ratio + _GRACE_BYTES:
            raise BadArchive(
                f"the archive's gzip data unpack to more than {self._max_ratio} times their size; "
                "send it uncompressed"
            )
