"""Tars for tests: sound ones by the standard library, hostile ones by hand."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping

END = bytes(1024)


def tar_of(files: Mapping[str, bytes | None], tar_format: int = tarfile.PAX_FORMAT) -> bytes:
    """A tar as the client makes it: members under `./`; a value of None is a folder."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:", format=tar_format) as tar:
        for path, content in files.items():
            info = tarfile.TarInfo(f"./{path}")
            info.mtime = 1_700_000_000
            if content is None:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
            else:
                info.size = len(content)
            tar.addfile(info, None if content is None else io.BytesIO(content))
    return made.getvalue()


def member(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    """One member, nothing checked: header and padded content."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(content)
    return info.tobuf(tarfile.GNU_FORMAT, errors="surrogateescape") + padded(content)


def header(name: str, size_bytes: int) -> bytes:
    """The header of a file whose content follows by other means."""
    info = tarfile.TarInfo(name)
    info.size = size_bytes
    return info.tobuf(tarfile.GNU_FORMAT)


def pax(records: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    """An extended header with exactly these records."""
    return member("pax", records, kind)


def record(key: bytes, value: bytes) -> bytes:
    """One well-formed pax record."""
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest) + 1
    while len(str(length)) + len(rest) != length:
        length += 1
    return str(length).encode() + rest


def resigned(tar: bytes, at: int, field: bytes) -> bytes:
    """`tar` with one field of its first header replaced and the checksum made right again."""
    tar = tar[:at] + field + tar[at + len(field) :]
    checksum = sum(tar[:148]) + 8 * 32 + sum(tar[156:512])
    return tar[:148] + b"%06o\0 " % checksum + tar[156:]


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 512)


def files_in(tar: bytes) -> dict[str, bytes | None]:
    """What the standard library finds in a tar, by path without `./`."""
    with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
        return dict(_contents(opened))


def _contents(opened: tarfile.TarFile) -> Iterator[tuple[str, bytes | None]]:
    for info in opened:
        extracted = opened.extractfile(info)
        yield info.name.removeprefix("./"), None if extracted is None else extracted.read()
