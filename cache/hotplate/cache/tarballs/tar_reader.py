"""Reads a tar while it arrives: pieces of any size in, events out, nothing written.

Python's `tarfile` with its extraction filters was bypassed again and again (CVE-2024-12718,
CVE-2025-4138, CVE-2025-4330, CVE-2025-4517), and it wants a file to read from. So this reader takes
only regular files and folders under plain relative paths, and refuses the archive at the first
member that is anything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hotplate.cache.errors import BadArchive
from hotplate.cache.member_path import PathTree, clean_path
from hotplate.cache.tarballs import tar_header
from hotplate.cache.tarballs.archive_limits import ArchiveLimits
from hotplate.cache.tarballs.gunzip import GZIP_MAGIC, Gunzip
from hotplate.cache.tarballs.tar_header import BLOCK_BYTES, TarHeader

_TAIL_MAX_BYTES = 1 << 20
"""Zeros after the end: writers fill up to their record size, 10 KiB by default."""


@dataclass(frozen=True)
class MemberBegin:
    """A file or folder; a file's content follows as memoryviews, `size_bytes` of it in all."""

    path: str
    """Relative, with `/`, without `.` or `..`."""
    folder: bool
    size_bytes: int
    mode: int
    """Permission bits only, at most 0o777."""
    mtime: float
    """Seconds since 1970."""


@dataclass(frozen=True)
class MemberEnd:
    """The member's last byte has been yielded."""

    path: str


@dataclass(frozen=True)
class ArchiveEnd:
    """The end marker was seen and the tree is sound; only padding may still come."""


Event = MemberBegin | memoryview | MemberEnd | ArchiveEnd


class TarReader:
    """Reads one ustar, GNU or pax tar, plain or in gzip."""

    def __init__(self, limits: ArchiveLimits | None = None) -> None:
        self._limits = limits or ArchiveLimits()
        self._first = b""
        self._plain_known = False
        self._gunzip: Gunzip | None = None
        self._block = bytearray()
        self._remaining_bytes = 0  # of the body that is being read, a record's or a file's
        self._padding_bytes = 0
        self._record: tuple[TarHeader, bytearray] | None = None
        self._described: dict[bytes, bytes] = {}  # by records, for the member that comes next
        self._record_bytes = 0  # of those records
        self._member: MemberBegin | None = None
        self._zero_blocks = 0
        self._tail_bytes = 0
        self._tree = PathTree()
        self._members = 0
        self._total_bytes = 0
        self._paths_bytes = 0

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Event]:
        """The events of `data`, to be used up before more is fed.

        A memoryview is valid until the next event. Raises BadArchive, after which the reader cannot
        be used again.
        """
        for plain in self._unpacked(data):
            rest = memoryview(plain)
            while rest.nbytes:
                if self._ended:
                    self._check_tail(rest)
                    break
                if self._remaining_bytes:
                    piece, rest = rest[: self._remaining_bytes], rest[self._remaining_bytes :]
                    yield from self._body(piece)
                elif self._padding_bytes:
                    skipped = min(self._padding_bytes, rest.nbytes)
                    self._padding_bytes -= skipped
                    rest = rest[skipped:]
                else:
                    room = BLOCK_BYTES - len(self._block)
                    self._block += rest[:room]
                    rest = rest[room:]
                    if len(self._block) == BLOCK_BYTES:
                        block, self._block = bytes(self._block), bytearray()
                        yield from self._header(block)

    def close(self) -> None:
        """To be called after the last piece. Raises BadArchive when something is missing."""
        where = None
        if self._gunzip is not None and not self._gunzip.finished:
            where = "its gzip data"
        if self._member is not None:
            where = f"member {_shown(self._member.path)}"
        elif not self._ended:
            where = where or ("its headers" if self._plain_known else "its first bytes")
        if where is not None:
            raise BadArchive(f"the archive ends in the middle of {where}; send it again")

    @property
    def _ended(self) -> bool:
        return self._zero_blocks == 2

    def _unpacked(self, data: bytes | bytearray | memoryview) -> Iterator[bytes | memoryview]:
        """`data` as it is, or out of gzip when the archive's first two bytes say so."""
        if not self._plain_known:
            data = self._first + data
            if len(data) < len(GZIP_MAGIC):
                self._first = data
                return
            self._plain_known = True
            if data.startswith(GZIP_MAGIC):
                self._gunzip = Gunzip(self._limits.gzip_ratio)
        if self._gunzip is None:
            yield memoryview(data)
        else:
            yield from self._gunzip.feed(data)

    def _header(self, block: bytes) -> Iterator[Event]:
        if not any(block):
            yield from self._zero_block()
            return
        if self._zero_blocks:
            raise BadArchive("the archive has a header after its end marker")
        try:
            header = tar_header.parse_header(block)
        except ValueError as exc:
            raise BadArchive(f"the archive is refused: {exc}") from exc
        if header.kind in tar_header.RECORD_KINDS:
            self._begin_record(header)
        else:
            yield from self._begin_member(header)

    def _zero_block(self) -> Iterator[Event]:
        if self._described:
            raise BadArchive("the archive ends in the middle of a member's headers; send it again")
        self._zero_blocks += 1
        if self._ended:
            try:
                self._tree.check()
            except ValueError as exc:
                raise BadArchive(f"the archive is refused: {exc}") from exc
            yield ArchiveEnd()

    def _check_tail(self, rest: memoryview) -> None:
        self._tail_bytes += rest.nbytes
        if self._tail_bytes > _TAIL_MAX_BYTES or any(rest):
            raise BadArchive("the archive has data after its end marker")

    def _body(self, piece: memoryview) -> Iterator[Event]:
        self._remaining_bytes -= piece.nbytes
        if self._record is None:
            yield piece
        else:
            self._record[1].extend(piece)
        if not self._remaining_bytes:
            yield from self._body_end()

    def _body_end(self) -> Iterator[Event]:
        if self._record is not None:
            header, data = self._record
            self._record = None
            self._describe(header, bytes(data))
        elif self._member is not None:
            path = self._member.path
            self._member = None
            yield MemberEnd(path)

    def _expect_body(self, size_bytes: int) -> None:
        self._remaining_bytes = size_bytes
        self._padding_bytes = -size_bytes % BLOCK_BYTES

    def _begin_record(self, header: TarHeader) -> None:
        self._record_bytes += header.size_bytes
        if not header.size_bytes or self._record_bytes > self._limits.record_bytes:
            raise BadArchive(
                f"the archive is refused: a member's extended headers have {self._record_bytes} "
                f"bytes (limit {self._limits.record_bytes})"
            )
        if header.kind == tar_header.PAX_GLOBAL_KIND:
            self._count_member()  # so that their number is limited too
        self._record = (header, bytearray())
        self._expect_body(header.size_bytes)

    def _describe(self, header: TarHeader, data: bytes) -> None:
        """Keeps a record's description of the next member, which may give each field only once."""
        try:
            if header.kind == tar_header.GNU_LONG_NAME_KIND:
                described = {b"path": data.removesuffix(b"\0")}
            elif header.kind == tar_header.GNU_LONG_LINK_KIND:
                described = {b"linkpath": data.removesuffix(b"\0")}
            else:
                described = tar_header.parse_pax(data)
        except ValueError as exc:
            raise BadArchive(f"the archive is refused: {exc}") from exc
        if header.kind == tar_header.PAX_GLOBAL_KIND:
            self._record_bytes -= len(data)  # nothing of it is kept
            if any(key in (b"path", b"size") or _is_sparse(key) for key in described):
                raise BadArchive("the archive is refused: a global header sets paths or sizes")
            return
        if described.keys() & self._described.keys():
            raise BadArchive("the archive is refused: two extended headers for one member")
        self._described |= described

    def _begin_member(self, header: TarHeader) -> Iterator[Event]:
        described, self._described, self._record_bytes = self._described, {}, 0
        name = described.get(b"path", header.name)
        try:
            self._member = member = self._accept(header, name, described)
        except ValueError as exc:
            raise BadArchive(f"member {_shown(name)} is refused: {exc}") from exc
        if member is None:
            return
        yield member
        self._expect_body(member.size_bytes)
        if not member.size_bytes:
            yield from self._body_end()

    def _accept(
        self, header: TarHeader, name: bytes, described: dict[bytes, bytes]
    ) -> MemberBegin | None:
        """The member, or None for the root folder. Raises ValueError with what is wrong."""
        refusal = tar_header.refusal(header)
        if refusal is not None:
            raise ValueError(refusal)
        if any(map(_is_sparse, described)):
            raise ValueError("it is a sparse file; only files and folders are taken")
        size_bytes, mtime = header.size_bytes, header.mtime
        if b"size" in described:
            size_bytes = tar_header.parse_size(described[b"size"])
        if b"mtime" in described:
            mtime = tar_header.parse_mtime(described[b"mtime"])
        folder = header.kind == tar_header.FOLDER_KIND
        if folder and size_bytes:
            raise ValueError(f"it is a folder of {size_bytes} bytes")
        path = clean_path(name, folder=folder)
        self._count_member()
        self._count_bytes(len(name), size_bytes)
        if not path:
            return None
        self._tree.add(path, folder=folder)
        return MemberBegin(path, folder, size_bytes, header.mode & 0o777, mtime)

    def _count_member(self) -> None:
        self._members += 1
        if self._members > self._limits.members:
            raise BadArchive(f"the archive has more than {self._limits.members} members (limit)")

    def _count_bytes(self, name_bytes: int, size_bytes: int) -> None:
        limits = self._limits
        if size_bytes > limits.file_bytes:
            raise ValueError(f"it has {size_bytes} bytes (limit {limits.file_bytes})")
        self._total_bytes += size_bytes
        if self._total_bytes > limits.total_bytes:
            raise ValueError(
                f"the archive has {self._total_bytes} bytes with it (limit {limits.total_bytes})"
            )
        self._paths_bytes += name_bytes
        if self._paths_bytes > limits.paths_bytes:
            raise ValueError(f"all paths have more than {limits.paths_bytes} bytes (limit)")


def _is_sparse(key: bytes) -> bool:
    return key.startswith(b"GNU.sparse.")


def _shown(name: str | bytes) -> str:
    """The name for a message: quoted, and cut so that it cannot flood the log."""
    text = name.decode(errors="backslashreplace") if isinstance(name, bytes) else name
    return repr(text if len(text) <= 200 else f"{text[:200]}…")
