"""The disk tier: complete, verified blobs as read-only files named by digest.

Trees of replicas are hard links to these files. What was written by an earlier run of the agent
counts as damaged until it has been verified again, so nothing here depends on a clean shutdown.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import tempfile
import threading
from pathlib import Path

from hotplate.cache.errors import CacheError, NoSpace, UnknownBlob
from hotplate.cache.manifest import CHUNK_BYTES, Content, chunk_digest
from hotplate.cache.origin import read_at
from hotplate.cache.room import Room, is_full

_PARTIAL = ".partial-"


class DiskTier:
    """A folder of blobs. Thread-safe."""

    def __init__(self, root: Path, reserve_bytes: int = 0) -> None:
        """`reserve_bytes` of the disk are left free; 0 = the usual."""
        self.root = root
        self.room = Room(root, reserve_bytes)
        root.mkdir(parents=True, exist_ok=True)
        self._linking = threading.Lock()
        self._spare = root / f"{_PARTIAL}link"
        self._sizes: dict[str, int] = {}
        for path in list(root.iterdir()):
            if path.name.startswith(_PARTIAL):
                path.unlink()  # what a killed agent left
            else:
                self._sizes[path.name] = path.stat().st_size

    @property
    def used_bytes(self) -> int:
        return sum(list(self._sizes.values()))

    def digests(self) -> list[str]:
        return list(self._sizes)

    def path(self, digest: str) -> Path:
        return self.root / digest

    def has(self, digest: str, size_bytes: int) -> bool:
        """Whether a file of that name and size is there; its bytes may still be damaged."""
        try:
            return self.path(digest).stat().st_size == size_bytes
        except FileNotFoundError:
            return False

    def discard(self, digest: str) -> None:
        self.path(digest).unlink(missing_ok=True)
        self._sizes.pop(digest, None)

    def verify(self, digest: str, blob: Content) -> bool:
        """Reads the whole file. A damaged one is deleted, and the answer is False."""
        scratch = memoryview(mmap.mmap(-1, min(CHUNK_BYTES, max(blob.size_bytes, 1))))
        copy = DiskCopy(self, digest)
        for index, expected in enumerate(blob.chunks):
            offset, length = blob.span(index)
            with scratch[:length] as part:
                try:
                    copy.read_into(offset, part)
                except CacheError:
                    return False
                if chunk_digest(part) != expected:
                    self.discard(digest)
                    return False
        return True

    def lend(self, digest: str) -> int:
        """A new read-only descriptor; the caller closes it. Raises UnknownBlob."""
        try:
            return os.open(self.path(digest), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as exc:
            raise UnknownBlob(f"blob {digest} has gone from the disk tier; ask again") from exc

    def land(self, size_bytes: int) -> DiskLanding:
        """Room to bring a blob straight to disk. Raises NoSpace."""
        return DiskLanding(self, size_bytes)

    def write(self, digest: str, source_fd: int, size_bytes: int) -> None:
        """Copies a complete, verified blob from `source_fd`. Raises NoSpace."""
        self.room.check(size_bytes)
        try:
            fd, partial = self._partial()
        except OSError as exc:
            raise disk_error(self.root, size_bytes, exc) from exc
        try:
            _reserve(fd, size_bytes)
            written = 0
            while written < size_bytes:
                written += os.sendfile(fd, source_fd, written, size_bytes - written)
            os.fsync(fd)
            self._keep(partial, digest, size_bytes)
        except OSError as exc:
            partial.unlink(missing_ok=True)
            raise disk_error(self.root, size_bytes, exc) from exc
        finally:
            os.close(fd)

    def _partial(self) -> tuple[int, Path]:
        """A file of its own each time: a late write to an abandoned one then harms nobody."""
        fd, name = tempfile.mkstemp(prefix=_PARTIAL, dir=self.root)
        os.fchmod(fd, 0o444)
        return fd, Path(name)

    def _keep(self, partial: Path, digest: str, size_bytes: int) -> None:
        os.replace(partial, self.path(digest))
        self._sizes[digest] = size_bytes

    def link(self, digest: str, target: Path, mode: int, mtime: float) -> None:
        """Puts the blob at `target`, atomically: a hard link, read-only.

        Mode and time belong to the file, not to the link: the first link sets them. A later one
        that differs is a copy if the file is small, and else shares the first one's.
        """
        mode = mode & 0o555 | 0o400
        path = self.path(digest)
        with self._linking:
            self._spare.unlink(missing_ok=True)
            stat = path.stat()
            differs = stat.st_mode & 0o777 != mode or abs(stat.st_mtime - mtime) > 1e-3
            if stat.st_nlink > 1 and differs and stat.st_size <= CHUNK_BYTES:
                shutil.copyfile(path, self._spare)
                path = self._spare
            if stat.st_nlink == 1 or path is self._spare:
                os.chmod(path, mode)
                os.utime(path, (mtime, mtime))
            if path is not self._spare:
                os.link(path, self._spare)
            os.replace(self._spare, target)
            # rename leaves both names of a file that was there already
            self._spare.unlink(missing_ok=True)

    def place_empty(self, target: Path, mtime: float) -> None:
        """Puts an empty, read-only file at `target`, atomically."""
        with self._linking:
            self._spare.unlink(missing_ok=True)
            os.close(os.open(self._spare, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444))
            os.utime(self._spare, (mtime, mtime))
            os.replace(self._spare, target)


class DiskCopy:
    """A blob of the disk tier as a source of chunks that are verified again."""

    def __init__(self, disk: DiskTier, digest: str) -> None:
        self._disk = disk
        self._digest = digest

    def read_into(self, offset: int, view: memoryview) -> None:
        fd = self._disk.lend(self._digest)
        try:
            got = read_at(fd, offset, view)
        except OSError as exc:
            raise CacheError(f"disk tier: blob {self._digest} cannot be read ({exc})") from exc
        finally:
            os.close(fd)
        if got != len(view):
            raise CacheError(f"disk tier: blob {self._digest} is too short")

    def discard(self) -> None:
        self._disk.discard(self._digest)


class DiskLanding:
    """A file being filled through a map; `keep` makes it a blob of the disk tier."""

    def __init__(self, disk: DiskTier, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._disk = disk
        disk.room.check(size_bytes)
        try:
            fd, self._path = disk._partial()
        except OSError as exc:
            raise disk_error(disk.root, size_bytes, exc) from exc
        try:
            _reserve(fd, size_bytes)
            self.view = memoryview(mmap.mmap(fd, size_bytes) if size_bytes else b"")
        except OSError as exc:
            self._path.unlink()
            raise disk_error(disk.root, size_bytes, exc) from exc
        finally:
            os.close(fd)

    def reserve(self, offset: int, length: int) -> None:
        """All of it was reserved at the start, where a file system allocates extents at once."""

    def lend(self) -> int:
        """A new read-only descriptor; the caller closes it."""
        return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)

    def keep(self, digest: str) -> None:
        """The bytes are complete and verified: from now on they are that blob's file.

        Not synced: a replica waits for it, and the next run verifies it in any case.
        """
        self._disk._keep(self._path, digest, self.size_bytes)
        del self.view

    def drop(self) -> None:
        self._path.unlink(missing_ok=True)
        del self.view


def _reserve(fd: int, size_bytes: int) -> None:
    if size_bytes:
        os.posix_fallocate(fd, 0, size_bytes)


def disk_error(root: Path, size_bytes: int, exc: OSError) -> CacheError:
    """What a failed write to the disk tier means."""
    if is_full(exc) or exc.errno == errno.EFBIG:
        return NoSpace(f"disk tier {root} has no room for {size_bytes} bytes; free some space")
    return CacheError(f"disk tier {root} cannot be written ({exc}); check the folder")
