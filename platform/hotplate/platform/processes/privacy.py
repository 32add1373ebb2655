"""Folders and files with secrets in them: the platform's user alone may enter and read them.

Tokens, keys and deployments' variables lie there in plain text, so nobody else may read them, and
nobody else may put other files in their place.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from hotplate.machine.foreign_folder import open_file
from hotplate.platform.errors import BadSetting

UMASK = 0o077
"""Of every command: what others are to read, whoever makes it says so."""
MOST_FILES = 10_000
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_private(path: Path, instead: str, *, alone: bool = False) -> None:
    """Make a folder that only its owner may enter, or make the one that is there so.

    `instead` says what else to do where that cannot be had, for a sentence. `alone`: there are no
    other users, as in a pod, whose volumes everybody may write to. Raises BadSetting.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, _OPEN)
    except OSError as error:
        raise BadSetting(f"{path} cannot be used ({error.strerror}); {instead}") from error
    try:
        about = os.fstat(fd)
        if about.st_uid != os.getuid():
            raise BadSetting(f"{path} belongs to user {about.st_uid}, not to us; {instead}")
        if not _tightened(fd):
            mode = stat.S_IMODE(about.st_mode)
            raise BadSetting(
                f"other users may enter {path} (mode {mode:o}), and its file system does not let "
                f"that be changed; {instead}"
            )
    finally:
        os.close(fd)
    if not alone:
        check_above(path, instead)


def check_above(path: Path, instead: str) -> None:
    """Whether others could put a folder of theirs in the place of `path`. Raises BadSetting."""
    ours = (0, os.getgid())
    for folder in path.resolve().parents:
        about = folder.stat()
        writers = about.st_mode & (stat.S_IWOTH | (0 if about.st_gid in ours else stat.S_IWGRP))
        if writers and not about.st_mode & stat.S_ISVTX:
            raise BadSetting(
                f"other users may write to {folder} (mode {stat.S_IMODE(about.st_mode):o}), so "
                f"that they could replace what is below it: 'chmod o-w,g-w {folder}', or {instead}"
            )


def make_files_private(folder: Path, instead: str) -> None:
    """Take away what others may do with the regular files directly in a folder of ours; what is
    below and the links in it are left alone. Raises BadSetting if one is another user's."""
    with os.scandir(folder) as entries:
        names = [entry.name for _, entry in zip(range(MOST_FILES), entries, strict=False)]
    for name in names:
        try:
            fd = open_file(folder / name)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINVAL, errno.ELOOP, errno.ENXIO):
                raise BadSetting(
                    f"{folder / name} cannot be read ({error.strerror}); remove it, or {instead}"
                ) from error
            continue
        try:
            owner = os.fstat(fd).st_uid
            if owner not in (0, os.getuid()):
                raise BadSetting(
                    f"{folder / name} belongs to user {owner}, not to us; remove it, or {instead}"
                )
            _tightened(fd)
        finally:
            os.close(fd)


def _tightened(fd: int) -> bool:
    """Whether others may do nothing with it, after that was taken away."""
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    if mode & 0o077:
        with suppress(OSError):
            os.fchmod(fd, mode & ~0o077)
    return not os.fstat(fd).st_mode & 0o077
