"""A file of the disk tier on its way in, and what an earlier run of the agent left of it."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import threading

from hotplate.cache.errors import CacheError
from hotplate.cache.fetching.fetch import ChunkDestination
from hotplate.cache.manifest import CHUNK_BYTES, Blob, Content, chunk_digest
from hotplate.cache.origins.blob_source import read_at
from hotplate.cache.tiers.disk import DiskTier, Reservation, disk_error

_thread = threading.local()


class DiskCopy:
    """A file that holds some or all of the chunks; each is verified when it is taken."""

    def __init__(self, disk: DiskTier, name: str, content: Content) -> None:
        self._disk = disk
        self._name = name
        self._content = content
        self.wrong: list[int] = []
        """Chunks that were asked for and are wrong."""

    def take(self, index: int, destination: ChunkDestination) -> bool:
        """Puts a chunk in its place if this copy has it right. Raises CacheError.

        Nothing is copied where the destination is this very file.
        """
        if not self._content.chunks[index]:
            return False  # the earlier run had not got that far
        offset, length = self._content.span(index)
        if isinstance(destination, DiskLanding):
            with memoryview(_scratch())[:length] as part:
                right = self._read(index, offset, part)
        else:
            with destination.view[offset : offset + length] as part:
                right = self._read(index, offset, part)
        if not right:
            self.wrong.append(index)
        return right

    def mend(self, source_fd: int) -> None:
        """Overwrites the chunks that were wrong from a right copy. Raises CacheError."""
        try:
            fd = self._disk.folder.reopen(self._name)
            try:
                for index in self.wrong:
                    self._disk.folder.copy(fd, source_fd, *self._content.span(index))
                self._disk.folder.sync(fd)
            finally:
                os.close(fd)
        except OSError as exc:
            raise disk_error(self._disk.root, self._content.size_bytes, exc) from exc

    def _read(self, index: int, offset: int, part: memoryview) -> bool:
        try:
            fd = os.open(self._disk.root / self._name, os.O_RDONLY | os.O_CLOEXEC)
            try:
                got = read_at(fd, offset, part)
            finally:
                os.close(fd)
        except OSError as exc:
            if exc.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                raise CacheError(f"disk tier: {self._name} cannot be read ({exc})") from exc
            return False  # a block that cannot be read is as good as a wrong one
        return got == len(part) and chunk_digest(part) == self._content.chunks[index]


class DiskLanding:
    """A file of the disk tier that is being filled, or verified where it lies."""

    def __init__(
        self,
        disk: DiskTier,
        name: str,
        size_bytes: int,
        reservation: Reservation | None,
        local: DiskCopy | None,
    ) -> None:
        """Made by `land` or `check`. Without a reservation the file is a blob already."""
        self.size_bytes = size_bytes
        self.local = local
        """The copy that is there already, to be verified."""
        self._disk = disk
        self._name = name
        self._lent_name = name
        self._reservation = reservation
        self._naming = threading.Lock()
        self._mapping = threading.Lock()
        self._map: mmap.mmap | None = None

    @property
    def view(self) -> memoryview:
        """The file as memory, for peers that ask for parts of it. Raises CacheError."""
        with self._mapping:
            if self._map is None and self.size_bytes:
                self._map = self._mapped()
            return memoryview(self._map or b"")

    def reserve(self, offset: int, length: int) -> None:
        """Does nothing: all of it was allocated at the start, which file systems do in one step."""

    def part(self, offset: int, length: int) -> memoryview:
        """Memory of this thread's: what is not right never comes to the file."""
        return memoryview(_scratch())[:length]

    def put(self, offset: int, part: memoryview) -> None:
        """Writes what is verified; nothing where the file was kept or given up meanwhile. Raises
        CacheError."""
        try:
            fd = self._disk.folder.reopen(self._name)
            try:
                while part:
                    written = os.pwrite(fd, part, offset)
                    offset, part = offset + written, part[written:]
            finally:
                os.close(fd)
        except FileNotFoundError:
            return
        except OSError as exc:
            raise disk_error(self._disk.root, self.size_bytes, exc) from exc

    def lend(self) -> int:
        """A new read-only descriptor; the caller closes it. Raises CacheError."""
        with self._naming:  # or the file might be renamed before it is opened
            return self._disk.lend(self._lent_name)

    def keep(self, digest: str) -> None:
        """The bytes are complete and verified: from now on they are that blob's file.

        Not synced: a replica waits for it, and the next run verifies it in any case. Raises
        CacheError.
        """
        if self._reservation is not None:
            try:
                with self._naming:
                    self._disk.keep(self._name, digest, self._reservation)
                    self._lent_name = digest
            except OSError as exc:
                raise disk_error(self._disk.root, self.size_bytes, exc) from exc

    def drop(self) -> None:
        """Gives the file up."""
        if self._reservation is not None:
            self._disk.folder.remove(self._name)
            self._reservation.release()
        elif self._map is not None:
            with contextlib.suppress(BufferError):  # a peer is being told a part of it
                self._map.close()

    def _mapped(self) -> mmap.mmap:
        fd = self.lend()
        try:
            return mmap.mmap(fd, self.size_bytes, prot=mmap.PROT_READ)
        except OSError as exc:
            raise disk_error(self._disk.root, self.size_bytes, exc) from exc
        finally:
            os.close(fd)


def land(disk: DiskTier, reservation: Reservation, key: str, content: Content) -> DiskLanding:
    """The file to bring a content to: a new one, or the one that a killed agent was filling.

    `key` is a digest, or has the form of one. Raises NoSpace.
    """
    if (unfinished := disk.take_unfinished(key, content.size_bytes)) is not None:
        return DiskLanding(
            disk, unfinished, content.size_bytes, reservation, DiskCopy(disk, unfinished, content)
        )
    try:
        fd, name = disk.folder.create(key, content.size_bytes)
    except OSError as exc:
        reservation.release()
        raise disk_error(disk.root, content.size_bytes, exc) from exc
    os.close(fd)
    return DiskLanding(disk, name, content.size_bytes, reservation, None)


def check(disk: DiskTier, digest: str, blob: Blob) -> DiskLanding:
    """A whole file of an earlier run, to be verified chunk by chunk and mended in place."""
    return DiskLanding(disk, digest, blob.size_bytes, None, DiskCopy(disk, digest, blob))


def _scratch() -> mmap.mmap:
    """This thread's memory for one chunk: memory that was touched before is five times faster."""
    if not hasattr(_thread, "scratch"):
        _thread.scratch = mmap.mmap(-1, CHUNK_BYTES)
    scratch: mmap.mmap = _thread.scratch
    return scratch
