"""The records of a tar: its 512-byte headers and the extended (pax) headers before them.

Stricter than `tarfile`, on purpose: what two readers may read differently (signs and underscores
in numbers, GNU dates read as a name's prefix, lengths that do not add up) is refused here.
Formats: POSIX.1-2017 pax, "ustar Interchange Format" and "pax Extended Header"; GNU tar manual,
"Basic Tar Format".
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

BLOCK_BYTES = 512
FILE_KINDS = (b"0", b"\0")
FOLDER_KIND = b"5"
GNU_LONG_NAME_KIND = b"L"
GNU_LONG_LINK_KIND = b"K"
PAX_KIND = b"x"
PAX_GLOBAL_KIND = b"g"
RECORD_KINDS = (GNU_LONG_NAME_KIND, GNU_LONG_LINK_KIND, PAX_KIND, PAX_GLOBAL_KIND)

_POSIX_MAGIC = b"ustar\0"
_GNU_MAGIC = b"ustar "
_NO_MAGIC = bytes(6)
"""Tar before POSIX."""
_REFUSED_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a FIFO",
    b"7": "a contiguous file",
    b"S": "a sparse file",
}
_OCTAL = re.compile(rb" *([0-7]*)[ \0]*")
_DECIMAL = re.compile(rb"-?[0-9]{1,20}(\.[0-9]{0,40})?")
_MTIME_MAX_S = 1 << 40
"""The year 36812: keeps times exact as JSON numbers and far from infinity."""


@dataclass(frozen=True)
class TarHeader:
    """One 512-byte header, as it stands there."""

    name: bytes
    kind: bytes
    size_bytes: int
    mode: int
    mtime: float


def parse_header(block: bytes) -> TarHeader:
    """Raises ValueError with the reason for 512 bytes that are no header."""
    if _number(block[148:156]) != sum(block[:148]) + 8 * ord(" ") + sum(block[156:]):
        raise ValueError("a header's checksum is wrong: this is no tar, or it is damaged")
    magic = block[257:263]
    if magic not in (_POSIX_MAGIC, _GNU_MAGIC, _NO_MAGIC):
        raise ValueError(f"a header is of an unknown format {magic!r}")
    name, kind = _text(block[:100]), block[156:157]
    prefix = _text(block[345:500])
    if prefix and magic != _GNU_MAGIC:  # GNU keeps dates there
        name = prefix + b"/" + name
    if kind == b"\0" and name.endswith(b"/"):
        kind = FOLDER_KIND  # how tar said it before POSIX
    size, mtime = _number(block[124:136]), _number(block[136:148])
    if size < 0:
        raise ValueError(f"a header has a size of {size} bytes")
    return TarHeader(name, kind, size, _number(block[100:108]), _checked_time(mtime))


def refusal(header: TarHeader) -> str | None:
    """Why a member of this kind is not taken; None for a file or folder."""
    if header.kind == FOLDER_KIND:
        return f"it is a folder of {header.size_bytes} bytes" if header.size_bytes else None
    if header.kind in FILE_KINDS:
        return None
    what = _REFUSED_KINDS.get(header.kind, f"of the unknown kind {header.kind!r}")
    return f"it is {what}; only files and folders are taken"


def parse_pax(data: bytes) -> dict[bytes, bytes]:
    """The records `<length> <key>=<value>\\n`; ValueError unless they fill `data` exactly."""
    records = {}
    at = 0
    while at < len(data):
        digits = data[at : data.find(b" ", at, at + 8)]
        end = at + int(digits) if re.fullmatch(rb"[0-9]{1,7}", digits) else 0
        record = data[at + len(digits) + 1 : end]
        key, equals, value = record[:-1].partition(b"=")
        if end > len(data) or record[-1:] != b"\n" or not equals:
            raise ValueError("an extended header is malformed")
        records[key] = value
        at = end
    return records


def parse_size(value: bytes) -> int:
    """The decimal `size` of an extended header; raises ValueError for anything else."""
    if not re.fullmatch(rb"[0-9]{1,20}", value):
        raise ValueError("its extended header has a size that is no number")
    return int(value)


def parse_mtime(value: bytes) -> float:
    """The decimal `mtime` of an extended header, in seconds; raises ValueError otherwise."""
    if not _DECIMAL.fullmatch(value):
        raise ValueError("its extended header has a time that is no number")
    return _checked_time(float(value))


def _checked_time(mtime: float) -> float:
    if not math.isfinite(mtime) or abs(mtime) > _MTIME_MAX_S:
        raise ValueError("its time of change is out of range")
    # Nanoseconds, as file systems have them, come through pax as they are; and -0.0 becomes 0.0,
    # so that one tree has one digest.
    return round(float(mtime), 9) + 0.0


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _number(field: bytes) -> int:
    """Octal digits, or GNU's base 256 where the first byte is 0x80 or 0xff (negative)."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    if field[0] == 0xFF:
        return int.from_bytes(field, "big", signed=True)
    match = _OCTAL.fullmatch(field)
    if match is None:
        raise ValueError("a header has a number that is none")
    return int(match[1] or b"0", 8)
