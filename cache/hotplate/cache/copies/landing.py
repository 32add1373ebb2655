"""A file of the disk tier on its way in, and what an earlier run of the agent left of it."""

from __future__ import annotations

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
        """Chunks that were asked for and are not right."""

    def take(self, index: int, destination: ChunkDestination) -> bool:
        """Puts a chunk in its place if this copy has it right. Raises CacheError.

        Where the destination is this very file, nothing is moved.
        """
        if not self._content.chunks[index]:
            return False  # nobody had got so far
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
        """Writes the chunks that were wrong over from a right copy. Raises CacheError."""
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
        claim: Reservation | None,
        local: DiskCopy | None,
    ) -> None:
        """Made by `land` or `check`. Without a claim it is a blob already."""
        self.size_bytes = size_bytes
        self.local = local
        """What is there already, to be verified."""
        self._disk = disk
        self._name = name
        self._lent_name = name
        self._claim = claim
        self._naming = threading.Lock()
        self._mapping = threading.Lock()
        self._map: mmap.mmap | None = None

    @property
    def view(self) -> memoryview:
        """The file as writable memory. Raises CacheError."""
        with self._mapping:
            if self._map is None and self.size_bytes:
                self._map = self._writable()
            return memoryview(self._map or b"")

    def reserve(self, offset: int, length: int) -> None:
        """All of it was reserved at the start, where a file system allocates extents at once."""

    def lend(self) -> int:
        """A new read-only descriptor; the caller closes it. Raises CacheError."""
        with self._naming:  # or it might be renamed between a look at the name and the opening
            return self._disk.lend(self._lent_name)

    def keep(self, digest: str) -> None:
        """The bytes are complete and verified: from now on they are that blob's file.

        Not synced: a replica waits for it, and the next run verifies it in any case. Raises
        CacheError.
        """
        if self._claim is not None:
            try:
                with self._naming:
                    self._disk.keep(self._name, digest, self._claim)
                    self._lent_name = digest
            except OSError as exc:
                raise disk_error(self._disk.root, self.size_bytes, exc) from exc

    def drop(self) -> None:
        """It is not filled any further."""
        if self._claim is not None:
            self._disk.folder.remove(self._name)
            self._claim.release()
        elif self._map is not None:
            try:
                self._map.close()
            except BufferError:  # somebody may write to it yet: it is never believed again
                self._disk.discard(self._name)

    def _writable(self) -> mmap.mmap:
        try:
            fd = self._disk.folder.reopen(self._name)
            try:
                return mmap.mmap(fd, self.size_bytes)
            finally:
                os.close(fd)
        except OSError as exc:
            raise disk_error(self._disk.root, self.size_bytes, exc) from exc


def land(disk: DiskTier, claim: Reservation, key: str, content: Content) -> DiskLanding:
    """A file to bring it to: a new one, or what a killed agent left. Raises NoSpace.

    `key` is a digest, or looks like one.
    """
    if (left := disk.take_left(key, content.size_bytes)) is not None:
        return DiskLanding(disk, left, content.size_bytes, claim, DiskCopy(disk, left, content))
    try:
        fd, name = disk.folder.create(key, content.size_bytes)
    except OSError as exc:
        claim.release()
        raise disk_error(disk.root, content.size_bytes, exc) from exc
    os.close(fd)
    return DiskLanding(disk, name, content.size_bytes, claim, None)


def check(disk: DiskTier, digest: str, blob: Blob) -> DiskLanding:
    """A whole file of an earlier run, to be verified chunk by chunk and mended in place."""
    return DiskLanding(disk, digest, blob.size_bytes, None, DiskCopy(disk, digest, blob))


def _scratch() -> mmap.mmap:
    """This thread's room for one chunk: memory touched before is five times faster."""
    if not hasattr(_thread, "scratch"):
        _thread.scratch = mmap.mmap(-1, CHUNK_BYTES)
    scratch: mmap.mmap = _thread.scratch
    return scratch
