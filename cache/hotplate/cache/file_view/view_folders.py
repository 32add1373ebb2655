"""The default folders of agents' mounts: made, held and swept.

An agent holds its folder as long as it runs, by a shared lock on the folder itself, which ends with
the process, however that ends. A folder that no process holds may go.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

from blake3 import blake3

from hotplate.cache.file_view import mounting

VIEWS = Path("/run/hotplate")
_NAME = re.compile("[0-9a-f]{16}")


def default_mount(data: Path) -> Path:
    """Where an agent with this data folder mounts by default."""
    return VIEWS / blake3(bytes(data.resolve())).hexdigest()[:16]


def hold(folder: Path) -> int:
    """Makes the folder, which stays as long as the descriptor is open. Raises OSError.

    Nothing may be mounted there.
    """
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as undo:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            undo.callback(os.close, fd)
            fcntl.flock(fd, fcntl.LOCK_SH)  # waits for a sweep at most
            if _is_at(fd, folder):  # it was not swept away meanwhile
                undo.pop_all()
                return fd


def sweep(views: Path = VIEWS) -> None:
    """Unmounts the views of dead agents anywhere, and removes the empty folders of `views` that no
    process holds.

    A view that is served, another user's folder and one with another name stay.
    """
    mounting.sweep()
    mounted = {one.folder for one in mounting.mounts()}
    for folder in _folders(views):
        if str(folder) not in mounted:
            with contextlib.suppress(OSError):  # it is held, or not empty, or gone
                _remove(folder)


def _folders(views: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError), os.scandir(views) as found:
        for one in found:
            if _NAME.fullmatch(one.name):
                yield Path(one.path)


def _remove(folder: Path) -> None:
    """Raises OSError where the folder is to stay."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(fd).st_uid == os.geteuid() and _is_at(fd, folder):
            folder.rmdir()
    finally:
        os.close(fd)


def _is_at(fd: int, folder: Path) -> bool:
    """Whether the open folder is still the one of that name. Raises FileNotFoundError."""
    return os.path.samestat(os.fstat(fd), os.stat(folder, follow_symlinks=False))
