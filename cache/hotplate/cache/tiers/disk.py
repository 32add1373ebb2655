"""The disk tier: complete, verified blobs as read-only files named by digest.

Trees of replicas are hard links to these files. What was written by an earlier run of the agent
is not trusted: each chunk is verified when it is first read, and mended in place where it is
wrong. So nothing here depends on a clean shutdown.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import threading
from pathlib import Path

from hotplate.cache.errors import CacheError, NoSpace, UnknownBlob
from hotplate.cache.manifest import CHUNK_BYTES, for_all
from hotplate.cache.tiers import private_mounts as own_mounts
from hotplate.cache.tiers.durable_folder import PARTIAL, DurableFolder
from hotplate.machine.free_space import FreeSpace, is_full, mib

CLOSED_TO_ROOT = "/proc/sys/vm/compact_memory"
"""A file that the kernel lets nobody read; writing to it only makes the kernel compact memory."""

_UNFINISHED = re.compile(rf"{re.escape(PARTIAL)}([0-9a-f]{{64}})-")


class DiskTier:
    """A folder of blobs within a limit. Thread-safe."""

    def __init__(
        self,
        root: Path,
        reserve_bytes: int = 0,
        limit_bytes: int = 0,
        folder: type[DurableFolder] = DurableFolder,
        *,
        read_by_root: bool = True,
    ) -> None:
        """`reserve_bytes` of the disk are left free; 0 = the usual. `limit_bytes` 0 = none.
        `read_by_root` = readers may be this user, which matters where that is root."""
        self.root = root
        self.limit_bytes = limit_bytes
        self.folder = folder(root)
        self._free_space = FreeSpace(root, reserve_bytes)
        self._read_by_root = read_by_root
        self._lent_from: int | None = None
        self._linking = threading.Lock()
        self._spare = root / f"{PARTIAL}link"
        self._counting = threading.Lock()
        self._used_bytes = 0  # with what is reserved
        self._sizes: dict[str, int] = {}  # least recently used first, as far as is known
        self._unfinished: dict[str, str] = {}  # names of files that a killed agent was filling
        self._take_stock()

    def _take_stock(self) -> None:
        for path in sorted(self.root.iterdir(), key=lambda path: path.stat().st_atime):
            unfinished = _UNFINISHED.match(path.name)
            if unfinished is not None and unfinished[1] not in self._unfinished:
                self._unfinished[unfinished[1]] = path.name
                self._count(unfinished[1], path.stat().st_size)
            elif path.name.startswith(PARTIAL):
                path.unlink()
        for path in self.root.iterdir():
            if not path.name.startswith(PARTIAL):
                self._forget_unfinished(path.name)
                self._count(path.name, path.stat().st_size)

    @property
    def used_bytes(self) -> int:
        """Bytes of the files that are there, and of those on their way."""
        return self._used_bytes

    def digests(self) -> list[str]:
        return list(self._sizes)

    def sizes(self) -> dict[str, int]:
        """Bytes by digest, the least recently used first as far as this process knows."""
        return dict(self._sizes)

    def path(self, digest: str) -> Path:
        return self.root / digest

    def has(self, digest: str, size_bytes: int) -> bool:
        """Whether a file of that name and size is there; its bytes may still be damaged."""
        try:
            return self.path(digest).stat().st_size == size_bytes
        except FileNotFoundError:
            return False

    def linked(self, digest: str) -> bool:
        """Whether a tree has the file too, so that deleting it here would free nothing."""
        try:
            return self.path(digest).stat().st_nlink > 1
        except FileNotFoundError:
            return False

    def discard(self, digest: str) -> None:
        self._forget_unfinished(digest)
        self.folder.remove(digest)
        self._uncount(digest)

    def shield(self) -> None:
        """From now on no borrower can change a file, not even the user that owns it, who could
        otherwise `fchmod` and open it again. Raises OSError where that is not possible."""
        self._lent_from = own_mounts.read_only(self.root)

    def close(self) -> None:
        """Files that are on loan live on."""
        if self._lent_from is not None:
            os.close(self._lent_from)
            self._lent_from = None

    def lend(self, digest: str) -> int:
        """A new read-only descriptor; the caller closes it. Raises UnknownBlob, CacheError."""
        name = self.path(digest) if self._lent_from is None else digest
        try:
            return os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._lent_from)
        except FileNotFoundError as exc:
            raise UnknownBlob(f"blob {digest} has gone from the disk tier; ask again") from exc
        except OSError as exc:
            raise CacheError(f"disk tier: blob {digest} cannot be opened ({exc.strerror})") from exc

    def lacks(self, size_bytes: int) -> int:
        """How many bytes have to be freed before `size_bytes` fit (0: they fit)."""
        lacking = self._free_space.lacks(size_bytes)
        if self.limit_bytes:
            lacking = max(lacking, self.used_bytes + size_bytes - self.limit_bytes)
        return lacking

    def reserve(self, size_bytes: int) -> Reservation:
        """Reserves space. Raises NoSpace."""
        with self._counting:
            if self.limit_bytes and self.used_bytes + size_bytes > self.limit_bytes:
                raise NoSpace(
                    f"disk tier {self.root}: {mib(size_bytes)} more are needed and "
                    f"{mib(self.used_bytes)} of its limit of {mib(self.limit_bytes)} are used; "
                    "raise the limit (--disk) or remove what is not needed"
                )
            if refusal := self._free_space.refusal(size_bytes):
                raise NoSpace(refusal)
            self._used_bytes += size_bytes
        return Reservation(self, size_bytes)

    def take_unfinished(self, digest: str, size_bytes: int) -> str | None:
        """The name of a file of that size that a killed agent was filling, now the caller's."""
        name = self._unfinished.get(digest)
        if name is None:
            return None
        if self._sizes.get(digest) != size_bytes:
            self._forget_unfinished(digest)
            return None
        del self._unfinished[digest]
        self._uncount(digest)
        return name

    def _forget_unfinished(self, digest: str) -> None:
        name = self._unfinished.pop(digest, None)
        if name is not None:
            self.folder.remove(name)
            self._uncount(digest)

    def keep(self, partial: str, digest: str, reservation: Reservation) -> None:
        """Makes the complete, verified file of the name `partial` that blob. Raises OSError."""
        self.folder.rename(partial, digest)
        reservation.release()
        self._count(digest, reservation.size_bytes)

    def _count(self, digest: str, size_bytes: int) -> None:
        with self._counting:
            self._used_bytes += size_bytes - self._sizes.pop(digest, 0)
            self._sizes[digest] = size_bytes

    def _uncount(self, digest: str) -> None:
        with self._counting:
            self._used_bytes -= self._sizes.pop(digest, 0)

    def link(self, digest: str, target: Path, mode: int, mtime: float) -> None:
        """Puts the blob at `target`, atomically: a hard link, read-only.

        Mode and time belong to the file, not to the link: the first link sets them. A later one
        that differs is a copy if the file is small, and else shares the first one's.
        """
        mode = for_all(mode)
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

    def is_at(self, digest: str, target: Path) -> bool:
        """Whether the file at `target` is that blob's."""
        try:
            return os.path.samestat(os.lstat(target), os.lstat(self.path(digest)))
        except FileNotFoundError:
            return False

    def place_closed(self, target: Path, mtime: float) -> bool:
        """Puts a file at `target` that nobody may open, atomically; whether that is possible.

        Root may open every file but a few of the kernel's: where root reads, it is a link to one
        of these, if there is one.
        """
        with self._linking:
            self._spare.unlink(missing_ok=True)
            os.close(os.open(self._spare, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0))
            os.utime(self._spare, (mtime, mtime))
            if self._read_by_root and os.access(self._spare, os.R_OK):
                self._spare.unlink()
                self._spare.symlink_to(CLOSED_TO_ROOT)
            closed = not self._read_by_root or (
                self._spare.is_file() and not os.access(self._spare, os.R_OK)
            )
            if closed:
                os.replace(self._spare, target)
            else:
                self._spare.unlink()
                target.unlink(missing_ok=True)
        return closed

    def _release(self, size_bytes: int) -> None:
        with self._counting:
            self._used_bytes -= size_bytes


class Reservation:
    """Space on disk for a file on its way, to be released when the file is kept or is gone."""

    def __init__(self, disk: DiskTier, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._disk: DiskTier | None = disk

    def part(self, size_bytes: int) -> Reservation:
        """Some of it, as a reservation of its own."""
        if self._disk is None or size_bytes > self.size_bytes:
            raise ValueError(f"{size_bytes} of {self.size_bytes} bytes")
        self.size_bytes -= size_bytes
        return Reservation(self._disk, size_bytes)

    def release(self) -> None:
        if self._disk is not None:
            self._disk._release(self.size_bytes)
            self._disk = None


def disk_error(root: Path, size_bytes: int, exc: OSError) -> CacheError:
    """The error that a failed write to the disk tier raises."""
    if is_full(exc) or exc.errno == errno.EFBIG:
        return NoSpace(f"disk tier {root} has no room for {size_bytes} bytes; free some space")
    return CacheError(f"disk tier {root} cannot be written ({exc}); check the folder")
