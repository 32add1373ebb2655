"""A folder that a build has left, read as what it is: anything, and something else a moment later.

It is opened once, and whatever is in it by its name in the folder above; no link is followed. What
is found has to be there unchanged when it is read: else it is refused, with one sentence that
names it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hotplate.cache.errors import BadEnvironment, CacheError
from hotplate.cache.manifest import CHUNK_BYTES, ManifestEntry
from hotplate.cache.origins.blob_source import read_at
from hotplate.machine.free_space import mib

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe would wait for its writer.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OTHER_NOW = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENXIO,
    errno.ESTALE,
)
"""What is said of a name that leads to something else than a moment ago."""
_LATEST = float(1 << 32)
"""Seconds: the latest time of a file that is kept as it is; the file systems of other nodes may
know no later one."""

Identity = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class TreeLimits:
    """How much of a folder is taken."""

    size_bytes: int = 32 << 30
    """Of all files together, as long as they say that they are."""
    entries: int = 200_000
    """Files, folders and links."""
    path_bytes: int = 1024
    depth: int = 64
    """Folders below each other."""


class ForeignTree:
    """The files of one folder, by path. Reading raises BadEnvironment, or CacheError where the
    disk fails."""

    def __init__(self, root: Path, home: str, owner: int, limits: TreeLimits) -> None:
        """`home` is where its maker had it, and `owner` the user that makes files in it. What is
        above `root` is ours."""
        self._home = home
        self._owner = owner
        self._limits = limits
        self._left_bytes = limits.size_bytes
        self._seen: dict[str, Identity] = {}
        self.entries: dict[str, ManifestEntry] = {}
        """Modes say no more than whether it can be run."""
        self.sizes: dict[str, int] = {}
        self.links: dict[str, str] = {}
        """Where links lead, by path; none is an absolute path below the folder."""
        with _reading(home):
            self._root = os.open(root, _FOLDER)
        self._folder = ("", os.dup(self._root))  # the one that was read from last
        try:
            self._device = os.fstat(self._root).st_dev
            self._scan(self._root, "", 1)
        except BaseException:  # also when interrupted: cleaned up, and raised again
            self.close()
            raise

    def __enter__(self) -> ForeignTree:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._folder[1])
        os.close(self._root)

    def pieces(self, path: str) -> Iterator[bytearray]:
        """A file's content; every piece but the last has `CHUNK_BYTES`."""
        with self._opened(path) as fd, _reading(path):
            size_bytes = self.sizes[path]
            for offset in range(0, size_bytes, CHUNK_BYTES):
                piece = bytearray(min(CHUNK_BYTES, size_bytes - offset))
                if read_at(fd, offset, memoryview(piece)) != len(piece):
                    raise _changed(path)
                yield piece
            self._check_same(path, fd)

    def forget_times(self) -> None:
        """From now on equal files make equal trees, whenever they were written."""
        self.entries = {path: replace(entry, mtime=0.0) for path, entry in self.entries.items()}

    def head(self, path: str, most_bytes: int) -> bytes:
        """What a file begins with."""
        with self._opened(path) as fd, _reading(path):
            return os.pread(fd, most_bytes, 0)

    def _scan(self, folder: int, below: str, depth: int) -> None:
        if depth > self._limits.depth:
            raise BadEnvironment(
                f"{below[:200]!r} lies {depth} folders deep (limit {self._limits.depth})"
            )
        with _reading(below or self._home), os.scandir(folder) as found:
            for one in found:
                self._note(one.name, f"{below}{one.name}", folder, depth)

    def _note(self, name: str, path: str, folder: int, depth: int) -> None:
        self._check_path(path)
        with _reading(path):
            about = os.stat(name, dir_fd=folder, follow_symlinks=False)
        self._check_owner(path, about)
        if stat.S_ISDIR(about.st_mode):
            self._put(path, about, 0o755)
            with _reading(path):
                below = os.open(name, _FOLDER, dir_fd=folder)
            try:
                self._scan(below, f"{path}/", depth + 1)
            finally:
                os.close(below)
        elif stat.S_ISLNK(about.st_mode):
            with _reading(path):
                target = os.readlink(name, dir_fd=folder)
            self._note_link(path, about, target)
        elif stat.S_ISREG(about.st_mode):
            self._note_file(path, about)
        else:
            raise BadEnvironment(
                f"{path!r} is {_kind(about.st_mode)}; have the bento's commands leave files, "
                "folders and links only"
            )

    def _note_file(self, path: str, about: os.stat_result) -> None:
        self._left_bytes -= about.st_size
        if self._left_bytes < 0:
            raise BadEnvironment(
                f"its files have more than the {mib(self._limits.size_bytes)} that an environment "
                f"may have, of which {path!r} says that it has {mib(about.st_size)}"
            )
        self.sizes[path] = about.st_size
        self._seen[path] = _identity(about)
        self._put(path, about, 0o755 if about.st_mode & 0o111 else 0o644)

    def _note_link(self, path: str, about: os.stat_result, target: str) -> None:
        if self._home == target or target.startswith(f"{self._home}/"):
            target = os.path.relpath(target, f"{self._home}/{os.path.dirname(path)}")
        self._check_text(target, f"where the link {path!r} leads to")
        self.links[path] = target
        self._put(path, about, 0o777, target)

    def _put(self, path: str, about: os.stat_result, mode: int, link: str | None = None) -> None:
        mtime = min(max(about.st_mtime, 0.0), _LATEST)
        self.entries[path] = ManifestEntry(path, mode, mtime, link=link)

    def _check_path(self, path: str) -> None:
        if len(self.entries) >= self._limits.entries:
            raise BadEnvironment(
                "it has more than the "
                f"{self._limits.entries} files, folders and links that an environment may have"
            )
        self._check_text(path, f"the path {path[:200]!r}")
        if path in self.entries:
            raise _changed(path)

    def _check_text(self, text: str, what: str) -> None:
        try:
            size_bytes = len(text.encode())
        except UnicodeEncodeError:
            raise BadEnvironment(f"{what} is not UTF-8; rename it") from None
        if size_bytes > self._limits.path_bytes:
            limit = self._limits.path_bytes
            raise BadEnvironment(f"{what} has {size_bytes} bytes (limit {limit})")
        if any(ord(character) < ord(" ") for character in text):
            raise BadEnvironment(f"{what} has a line break or another control character; rename it")

    def _check_owner(self, path: str, about: os.stat_result) -> None:
        if (about.st_uid, about.st_dev) != (self._owner, self._device):
            raise BadEnvironment(f"{path!r} is not the build's own: somebody else has made it")

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        """A descriptor of a file that is still the one that was found."""
        above, _, name = path.rpartition("/")
        with _reading(path):
            fd = os.open(name, _FILE, dir_fd=self._above(above))
        try:
            self._check_same(path, fd)
            yield fd
        finally:
            os.close(fd)

    def _above(self, folder: str) -> int:
        """A descriptor of that folder, which stays open until another one is asked for."""
        if self._folder[0] != folder:
            fd = os.dup(self._root)
            for part in folder.split("/") if folder else ():
                above = fd
                try:
                    fd = os.open(part, _FOLDER, dir_fd=above)
                finally:
                    os.close(above)
            old, self._folder = self._folder, (folder, fd)
            os.close(old[1])
        return self._folder[1]

    def _check_same(self, path: str, fd: int) -> None:
        if _identity(os.fstat(fd)) != self._seen[path]:
            raise _changed(path)


@contextlib.contextmanager
def _reading(path: str) -> Iterator[None]:
    """Turns what the disk says into one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in _OTHER_NOW:
            raise _changed(path) from error
        raise CacheError(f"{path!r} cannot be read on the node ({error.strerror})") from error


def _identity(about: os.stat_result) -> Identity:
    """Whoever changes a file may set its times, but not that of its last change."""
    own = (about.st_dev, about.st_ino, about.st_size)
    return (*own, about.st_mtime_ns, about.st_ctime_ns)


def _changed(path: str) -> BadEnvironment:
    return BadEnvironment(
        f"{path!r} was changed while it was read; the bento's commands are to leave nothing running"
    )


def _kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"
