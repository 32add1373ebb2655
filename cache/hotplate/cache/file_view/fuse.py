"""The kernel's FUSE protocol (linux/fuse.h, 7.31 and later): what a read-only file system needs.

Only bytes in and bytes out: no I/O. Numbers and layouts are the kernel's.
"""

from __future__ import annotations

import enum
import stat
import struct
from dataclasses import dataclass

MAX_REQUEST_BYTES = 1 << 20
"""The most that one READ asks for: 256 pages, the kernel's own limit."""
READ_AHEAD_BYTES = 16 << 20
"""Two chunks: with the usual 128 KiB a file streams at half the speed."""
_MAX_BACKGROUND = 1024
"""Read-aheads under way, of all files together. A stalled file parks 16 or so, which must leave
room for the files that do not stall."""
FOREVER_S = 1 << 31
"""How long the kernel may cache what never changes: the content of a tree."""


class Op(enum.IntEnum):
    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    READLINK = 5
    OPEN = 14
    READ = 15
    STATFS = 17
    RELEASE = 18
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    READDIRPLUS = 44


_IN_HEADER = struct.Struct("<IIQQIIIHH")
_OUT_HEADER = struct.Struct("<IiQ")
_INIT_IN = struct.Struct("<IIIII")
_INIT_OUT = struct.Struct("<IIIIHHIIHHII24x")
_ATTR = struct.Struct("<QQQQQQIIIIIIIIII")
_VALID = struct.Struct("<QQQQII")
_ATTR_VALID = struct.Struct("<QII")
_OPEN_OUT = struct.Struct("<QIi")
_READ_IN = struct.Struct("<QQI")
_DIRENT = struct.Struct("<QQII")
_STATFS = struct.Struct("<QQQQQIIII24x")

_ASYNC_READ = 1 << 0
_DO_READDIRPLUS = 1 << 13
_READDIRPLUS_AUTO = 1 << 14
_PARALLEL_DIROPS = 1 << 18
_MAX_PAGES = 1 << 22
_CACHE_SYMLINKS = 1 << 23
_INIT_EXT = 1 << 30
_PASSTHROUGH = 1 << 37
_WANTED_FLAGS = (
    _ASYNC_READ
    | _DO_READDIRPLUS
    | _READDIRPLUS_AUTO
    | _PARALLEL_DIROPS
    | _MAX_PAGES
    | _CACHE_SYMLINKS
    | _INIT_EXT
    | _PASSTHROUGH
)

OPEN_KEEPS_CACHE = 1 << 1
OPEN_CACHES_FOLDER = 1 << 3
OPEN_PASSES_THROUGH = 1 << 7

BACKING_OPEN = 0x4010E501
"""ioctl on the device: struct { s32 fd; u32 flags; u64 } → the backing's id (Linux 6.9)."""
BACKING_CLOSE = 0x4004E502


@dataclass(frozen=True)
class FuseRequest:
    op: int
    unique: int
    """The number of the request in its answer, and in an interrupt."""
    node: int
    body: bytes


def request(data: memoryview) -> FuseRequest:
    """One request as read from the device."""
    _, op, unique, node, *_ = _IN_HEADER.unpack_from(data)
    return FuseRequest(op, unique, node, bytes(data[_IN_HEADER.size :]))


def answer(unique: int, length: int, errno: int = 0) -> bytes:
    """The header of an answer whose body has `length` bytes."""
    return _OUT_HEADER.pack(_OUT_HEADER.size + length, -errno, unique)


def greeting(body: bytes) -> tuple[bytes, bool]:
    """The answer to INIT, and whether files may be passed through."""
    _, minor, read_ahead_bytes, offered, extended = _INIT_IN.unpack_from(body.ljust(20, b"\0"))
    if not offered & _INIT_EXT:
        extended = 0
    taken = _WANTED_FLAGS & (offered | extended << 32)
    passthrough = bool(taken & _PASSTHROUGH)
    data = _INIT_OUT.pack(
        7,
        min(minor, 40),
        max(read_ahead_bytes, READ_AHEAD_BYTES),
        taken & 0xFFFFFFFF,
        _MAX_BACKGROUND,
        _MAX_BACKGROUND * 3 // 4,
        4096,  # of a write, which never comes
        1,
        MAX_REQUEST_BYTES >> 12,
        0,
        taken >> 32,
        int(passthrough),  # how deep file systems may be stacked
    )
    return data, passthrough


@dataclass(frozen=True)
class Attributes:
    """What `stat` says of a file, folder or link."""

    number: int
    mode: int
    size_bytes: int
    mtime: float
    owner: tuple[int, int]

    def to_bytes(self) -> bytes:
        seconds = int(self.mtime // 1)
        nanoseconds = int((self.mtime - seconds) * 1e9)
        links = 2 if stat.S_ISDIR(self.mode) else 1
        times, parts = (seconds,) * 3, (nanoseconds,) * 3
        blocks = -(-self.size_bytes // 512)
        numbers = (self.number, self.size_bytes, blocks, *times, *parts)
        return _ATTR.pack(*numbers, self.mode, links, *self.owner, 0, 1 << 20, 0)


def attributes(of: Attributes) -> bytes:
    """The answer to GETATTR."""
    return _ATTR_VALID.pack(FOREVER_S, 0, 0) + of.to_bytes()


def entry(of: Attributes, name_valid_s: int = FOREVER_S) -> bytes:
    """The answer to LOOKUP; the kernel does not ask for the name again in that time."""
    return _VALID.pack(of.number, 0, name_valid_s, FOREVER_S, 0, 0) + of.to_bytes()


def opened(handle: int, flags: int, backing: int = 0) -> bytes:
    """The answer to OPEN and OPENDIR."""
    return _OPEN_OUT.pack(handle, flags, backing)


def read_span(body: bytes) -> tuple[int, int, int]:
    """The (handle, offset, length) of a READ or READDIR."""
    handle, offset, length = _READ_IN.unpack_from(body)
    return handle, offset, length


def directory_entry(number: int, name: bytes, kind: int, position: int) -> bytes:
    """One name of a READDIR; `position` is where the next one begins, `kind` a file mode."""
    head = _DIRENT.pack(number, position, len(name), stat.S_IFMT(kind) >> 12)
    return (head + name).ljust(-(-(_DIRENT.size + len(name)) // 8) * 8, b"\0")


UNASKED = bytes(_VALID.size + _ATTR.size)
"""What precedes a READDIRPLUS name that counts as no look-up."""


def forgotten(op: int, node: int, body: bytes) -> list[tuple[int, int]]:
    """The nodes of a FORGET or BATCH_FORGET, and how many look-ups of each are over."""
    if op == Op.FORGET:
        return [(node, struct.unpack_from("<Q", body)[0])]
    count = struct.unpack_from("<I", body)[0]
    return [struct.unpack_from("<QQ", body, 8 + 16 * index) for index in range(count)]


def number_in(body: bytes) -> int:
    """The first field of a body: the handle of a RELEASE, the request of an INTERRUPT."""
    value: int = struct.unpack_from("<Q", body)[0]
    return value


def statistics() -> bytes:
    """The answer to STATFS: a full file system, since it is read-only."""
    return _STATFS.pack(0, 0, 0, 0, 0, 1 << 20, 255, 1 << 20, 0)
