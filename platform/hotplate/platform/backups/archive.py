"""The file of a backup: a tar, and after its end the digest of all of it.

The digest is looked at before anything is read, so a file that was cut or changed, wherever, is not
taken for a backup. Whoever unpacks it with `tar` does not notice the digest: tar stops at its end.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from blake3 import blake3

from hotplate.platform.errors import BackupFailed

PIECE_BYTES = 1 << 20
_BLOCK_BYTES = tarfile.BLOCKSIZE
_END = bytes(2 * _BLOCK_BYTES)
_SEAL = "blake3 {}\n"
_SEAL_BYTES = len(_SEAL.format("0" * 64))


class ArchiveWriter:
    """Adds members, one after the other; each is written as it comes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = blake3()

    def add(self, name: str, size_bytes: int, pieces: Iterable[bytes]) -> None:
        """A file of so many bytes. Raises BackupFailed where the pieces are not as many."""
        about = tarfile.TarInfo(name)
        about.size, about.mode = size_bytes, 0o600
        self._write(about.tobuf(tarfile.GNU_FORMAT))
        written = 0
        for piece in pieces:
            self._write(piece)
            written += len(piece)
        if written != size_bytes:
            raise BackupFailed(f"{name} has changed while it was read; try again")
        self._write(bytes(-written % _BLOCK_BYTES))

    def seal(self) -> None:
        """Ends the file: from here on it is a backup."""
        self._write(_END)
        self._file.write(_SEAL.format(self._digest.hexdigest()).encode())

    def _write(self, data: bytes) -> None:
        self._digest.update(data)
        self._file.write(data)


@contextmanager
def writing(path: Path) -> Iterator[ArchiveWriter]:
    """A file that has its name when the block ends, and not before; in place of one that has it.

    Raises BackupFailed for a disk that does not take it.
    """
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with open(descriptor, "wb") as file:
                archive = ArchiveWriter(file)
                yield archive
                archive.seal()
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise BackupFailed(f"{path} cannot be written ({error.strerror or error})") from error


class ArchiveReader:
    """The members of a file whose digest was right, in their order."""

    def __init__(self, file: IO[bytes]) -> None:
        self._tar = tarfile.open(fileobj=file, mode="r:")  # noqa: SIM115 - the file is the caller's

    def __iter__(self) -> Iterator[tuple[str, IO[bytes]]]:
        """Name and content; the content is to be read before the next one is asked for."""
        while (member := self._tar.next()) is not None:
            content = self._tar.extractfile(member)
            if content is not None:
                yield member.name, content
            self._tar.members = []  # type: ignore[attr-defined]  # it would keep them all


@contextmanager
def reading(path: Path) -> Iterator[ArchiveReader]:
    """Raises BackupFailed for what is no backup, or not a whole one."""
    try:
        with open(path, "rb") as file:
            _check(path, file)
            file.seek(0)
            yield ArchiveReader(file)
    except OSError as error:
        raise BackupFailed(f"{path} cannot be read ({error.strerror or error})") from error
    except tarfile.TarError as error:
        raise BackupFailed(f"{path} is no backup of Hotplate ({error})") from error


def _check(path: Path, file: IO[bytes]) -> None:
    left = os.fstat(file.fileno()).st_size - _SEAL_BYTES
    digest = blake3()
    while left > 0 and (piece := file.read(min(PIECE_BYTES, left))):
        digest.update(piece)
        left -= len(piece)
    if left or file.read() != _SEAL.format(digest.hexdigest()).encode():
        raise BackupFailed(
            f"{path} is no whole backup of Hotplate: it was cut or changed, or is another file; "
            "nothing was changed, so take another copy of it"
        )


def pieces_of(file: IO[bytes]) -> Iterator[bytes]:
    """The content of a file, a MiB at a time."""
    while piece := file.read(PIECE_BYTES):
        yield piece
