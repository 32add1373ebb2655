"""A folder in which somebody writes whom we do not trust: a replica, a build, an upload.

Whatever lies there may be a link to our own files, a pipe or a socket that never says anything, a
file of a million TiB, a folder of a million files, ten thousand folders deep, and something else
at the next look. So it is opened here and nowhere else: no link is followed, nothing but regular
files is read, every read and listing has a limit, and the work is done in threads of its own
(`aside`), which the event loop and the others' work never wait for.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import ParamSpec, TypeVar

LOOK_S = 10.0
"""How long a look at one folder may take; its disk may be slow."""
REMOVAL_S = 600.0
"""The same for removing one: a million files take 10 to 60 s."""
DEPTH = 32
"""Folders below each other that are looked into."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe would wait for its writer, and a file that somebody holds a lease on for its end.
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_AT_A_TIME = 1000

_looks = ThreadPoolExecutor(4, "foreign")
_long = ThreadPoolExecutor(4, "foreign-long")

P = ParamSpec("P")
T = TypeVar("T")


async def aside(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `work` returns, which looks into foreign folders in a thread kept for that."""
    return await _in(_looks, work, *args, **kwargs)


async def aside_for_long(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The same for what copies or removes much: looks do not wait for it."""
    return await _in(_long, work, *args, **kwargs)


async def _in(
    threads: ThreadPoolExecutor, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(threads, lambda: work(*args, **kwargs))


class ForeignFolder:
    """One open folder. Every method does file I/O and may raise OSError, TimeoutError among them.

    Names may lead into folders below (`"a/b"`), and never out: each part is opened by itself.
    """

    def __init__(self, fd: int, until: float) -> None:
        """Takes `fd`; `until` is by `time.monotonic()`."""
        self._fd = fd
        self._until = until

    @classmethod
    def open(cls, path: str | Path, limit_s: float = LOOK_S) -> ForeignFolder:
        """The folder at `path`, which is no link; what is above it is ours."""
        return cls(os.open(path, _FOLDER), _now() + limit_s)

    def __enter__(self) -> ForeignFolder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def folder(self, name: str) -> ForeignFolder:
        """One below it; the caller closes it."""
        fd = os.dup(self._fd)
        for part in _parts(name):
            above, fd = fd, -1
            try:
                fd = os.open(part, _FOLDER, dir_fd=above)
            finally:
                os.close(above)
        return ForeignFolder(fd, self._until)

    def open_file(self, name: str) -> int:
        """A descriptor to read a regular file with, for the caller to close."""
        above, _, last = name.rpartition("/")
        if above:
            with self.folder(above) as folder:
                return folder.open_file(last)
        self._check_time()
        (part,) = _parts(last)
        return open_file(part, dir_fd=self._fd)

    def read(self, name: str, most_bytes: int) -> bytes:
        """What a regular file begins with, `most_bytes` at most."""
        fd = self.open_file(name)
        with open(fd, "rb", buffering=0) as file:
            pieces, left = [], most_bytes
            while left > 0 and (piece := file.read(min(left, 1 << 20))):
                self._check_time()
                pieces.append(piece)
                left -= len(piece)
        return b"".join(pieces)

    def link(self, name: str) -> str:
        """Where a link leads to; it is not followed."""
        above, _, last = name.rpartition("/")
        if above:
            with self.folder(above) as folder:
                return folder.link(last)
        (part,) = _parts(last)
        return os.readlink(part, dir_fd=self._fd)

    def names(self, most: int) -> list[str]:
        """What is in it, in any order; `most` of them at most."""
        with os.scandir(self._fd) as entries:
            return [entry.name for entry in islice(entries, most)]

    def files(self, most: int, most_bytes: int) -> Iterator[tuple[str, int]]:
        """Each regular file in it and below that has no other name, and a descriptor of it, open
        until the next one is asked for.

        What is neither file nor folder is left out. Raises OSError where there are more than
        `most` names or `most_bytes`, or more than `DEPTH` folders below each other.
        """
        counts = [most, most_bytes]
        return self._files("", counts, DEPTH)

    def make_folder(self, name: str, mode: int, unless_owned_by: int | None = None) -> int:
        """Have a folder in it with that mode, made or there already, unless it is that user's; the
        id of its owner."""
        (part,) = _parts(name)
        with contextlib.suppress(FileExistsError):
            os.mkdir(part, 0o700, dir_fd=self._fd)
        fd = os.open(part, _FOLDER, dir_fd=self._fd)
        try:
            owner = os.fstat(fd).st_uid
            if owner != unless_owned_by:
                os.fchmod(fd, mode)
        finally:
            os.close(fd)
        return owner

    def move(self, name: str, to: ForeignFolder) -> None:
        """Give a regular file of this folder to another one of the same disk."""
        (part,) = _parts(name)
        about = os.stat(part, dir_fd=self._fd, follow_symlinks=False)
        if not stat.S_ISREG(about.st_mode):
            raise _not_regular(name)
        os.rename(part, part, src_dir_fd=self._fd, dst_dir_fd=to._fd)

    def give(self, owner: int, *, linked: bool) -> None:
        """Make it, and all that is in it, that user's and group's; `linked` = files that have other
        names, too: elsewhere those may be somebody else's.

        What vanishes meanwhile is left out: programs may be at work in there.
        Raises OSError where there are more than `DEPTH` folders below each other.
        """
        self._give(owner, linked, DEPTH)

    def _give(self, owner: int, linked: bool, depth: int) -> None:
        if depth < 0:
            raise OSError(errno.ELOOP, f"more than {DEPTH} nested folders")
        os.chown(self._fd, owner, owner)
        with os.scandir(self._fd) as entries:
            for entry in entries:
                self._check_time()
                with contextlib.suppress(FileNotFoundError):
                    self._give_entry(entry, owner, linked, depth)

    def _give_entry(self, entry: os.DirEntry[str], owner: int, linked: bool, depth: int) -> None:
        if entry.is_dir(follow_symlinks=False):
            with self.folder(entry.name) as folder:
                folder._give(owner, linked, depth - 1)
            return
        about = entry.stat(follow_symlinks=False)
        shared = stat.S_ISREG(about.st_mode) and about.st_nlink > 1
        if about.st_uid != owner and (linked or not shared):
            os.chown(entry.name, owner, owner, dir_fd=self._fd, follow_symlinks=False)

    def _files(self, below: str, counts: list[int], depth: int) -> Iterator[tuple[str, int]]:
        if depth < 0:
            raise OSError(errno.ELOOP, f"more than {DEPTH} nested folders")
        with os.scandir(self._fd) as entries:
            for entry in entries:
                self._check_time()
                counts[0] -= 1
                if counts[0] < 0:
                    raise OSError(errno.E2BIG, "too many files")
                with contextlib.suppress(FileNotFoundError):
                    if entry.is_dir(follow_symlinks=False):
                        with self.folder(entry.name) as folder:
                            yield from folder._files(f"{below}{entry.name}/", counts, depth - 1)
                    elif entry.is_file(follow_symlinks=False):
                        yield from self._file(entry.name, below, counts)

    def _file(self, name: str, below: str, counts: list[int]) -> Iterator[tuple[str, int]]:
        try:
            fd = self.open_file(name)
        except TimeoutError:
            raise
        except OSError:  # it is gone, or something else by now
            return
        try:
            about = os.fstat(fd)
            if about.st_nlink == 1:
                counts[1] -= about.st_size
                if counts[1] < 0:
                    raise OSError(errno.EFBIG, "too many bytes")
                yield below + name, fd
        finally:
            os.close(fd)

    def _check_time(self) -> None:
        if _now() > self._until:
            raise TimeoutError(errno.ETIMEDOUT, "listing it takes too long")


def open_file(path: str | Path, flags: int = os.O_RDONLY, *, dir_fd: int | None = None) -> int:
    """A descriptor of a regular file, for the caller to close; never waits, follows no link."""
    fd = os.open(path, flags | _FILE, 0o600, dir_fd=dir_fd)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _not_regular(str(path))
    return fd


def read(path: str | Path, most_bytes: int) -> bytes:
    """What the regular file at `path` begins with; its folder is foreign, those above are ours."""
    path = Path(path)
    with ForeignFolder.open(path.parent) as folder:
        return folder.read(path.name, most_bytes)


def tree_bytes(path: str | Path, limit_s: float = LOOK_S) -> int:
    """What the files below take of the disk; a part of it where that cannot be told, or takes too
    long to tell."""
    until, found = _now() + limit_s, 0
    # RecursionError: thousands of folders below each other.
    with contextlib.suppress(OSError, RecursionError):
        for _, _, names, folder in os.fwalk(path):
            for name in names:
                with contextlib.suppress(OSError):
                    found += os.stat(name, dir_fd=folder, follow_symlinks=False).st_blocks * 512
                if _now() > until:
                    return found
    return found


def remove_tree(path: str | Path, limit_s: float = REMOVAL_S) -> None:
    """Remove what is at `path`, whatever it is, if anything is; what is above it is ours.

    Needs two descriptors and little memory, however deep and wide it is. Its makers may still be
    writing: then it may raise OSError, TimeoutError among them, with a part of it left.
    """
    path, until = Path(path), _now() + limit_s
    with contextlib.ExitStack() as opened:
        above = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        opened.callback(os.close, above)
        if _unlinked(path.name, above):
            return
        top = _open_ours(path.name, above)
        opened.callback(os.close, top)
        while folders := _clear(top, until):
            for name in folders:
                _lift(name, top, until)
        os.rmdir(path.name, dir_fd=above)


def _clear(folder: int, until: float) -> list[str]:
    """Remove what can be; the names of folders that are left, some of them if there are many."""
    while True:
        folders: list[str] = []
        gone = False
        with os.scandir(folder) as entries:
            for entry in entries:
                if _now() > until:
                    raise TimeoutError(errno.ETIMEDOUT, "removing it takes too long")
                if _unlinked(entry.name, folder):
                    gone = True
                else:
                    folders.append(entry.name)
                if len(folders) >= _AT_A_TIME:
                    break
        # A listing from which names were removed meanwhile may have left others out.
        if folders or not gone:
            return folders


def _lift(name: str, top: int, until: float) -> None:
    """Remove a folder of `top`; those in it become folders of `top` themselves, so that the depth
    is 1 again and again."""
    fd = _open_ours(name, top)
    try:
        while folders := _clear(fd, until):
            for each in folders:
                os.close(_open_ours(each, fd))
                os.rename(each, secrets.token_hex(16), src_dir_fd=fd, dst_dir_fd=top)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=top)


def _unlinked(name: str, folder: int) -> bool:
    """Whether there is none of that name any more; it is a folder else. Raises OSError."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except (IsADirectoryError, PermissionError):
        try:
            about = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return True
        if not stat.S_ISDIR(about.st_mode):
            raise
        return False
    return True


def _open_ours(name: str, folder: int) -> int:
    """A folder that is to go, with the right to empty it, whatever its mode said."""
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if os.fstat(handle).st_mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
        return os.open(".", _FOLDER, dir_fd=handle)
    finally:
        os.close(handle)


def _now() -> float:
    return time.monotonic()  # noqa: TID251 - in a thread, where no loop can be asked


def _parts(name: str) -> list[str]:
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise OSError(errno.EINVAL, "not the name of a file below the folder", name)
    return parts


def _not_regular(name: str) -> OSError:
    return OSError(errno.EINVAL, "it is not a regular file", name)
