"""A volume's folders, put together and mounted at once where kubelet wants them.

They are bound together in a mount namespace that nobody else sees, and the whole is moved to its
place by one call: so a volume is there with all that is in it, or not at all, also after a kill,
and nobody ever sees a part of it writable. Needs CAP_SYS_ADMIN and Linux 5.2.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from hotplate.cache.file_view.mounting import mounts
from hotplate.cache.tiers.private_mounts import apart, bind

_OPEN_TREE, _MOVE_MOUNT = 428, 429
"""Numbers of system calls, the same on every architecture."""
_CLONE, _RECURSIVE, _CLOEXEC = 1, 0x8000, os.O_CLOEXEC
_FROM_EMPTY_PATH = 4
_HERE = -100
_DETACH, _NO_FOLLOW = 2, 8
"""From linux/mount.h, linux/fcntl.h and sys/mount.h."""

_libc = ctypes.CDLL(None, use_errno=True)


def attach(volume: Path, shown: Mapping[str, Path], target: Path) -> None:
    """Mount `volume` at `target`, with the folders `shown` at those of its own that have their
    names. Nothing of it can be written. Raises OSError."""
    opened: list[int] = []

    def assemble() -> None:
        bind(volume, volume)
        for name, folder in shown.items():
            bind(folder, volume / name)
        flags = _CLONE | _RECURSIVE | _CLOEXEC
        opened.append(_call(_OPEN_TREE, _HERE, os.fsencode(volume), flags))

    try:
        apart(assemble)
        _call(_MOVE_MOUNT, opened[0], b"", _HERE, os.fsencode(target), _FROM_EMPTY_PATH)
    finally:
        for fd in opened:
            os.close(fd)


def detach(target: Path) -> None:
    """Unmount what is at `target`, even in use, and remove the folder. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        while is_mounted(target):
            if _libc.umount2(os.fsencode(target), _DETACH | _NO_FOLLOW) != 0:
                _fail(target)
        target.rmdir()


def is_mounted(target: Path) -> bool:
    """Whether something is mounted there."""
    return str(target) in set(mounted_below(target.parent))


def mounted_below(folder: Path) -> Iterator[str]:
    """The folders below this one at which something is mounted."""
    return (one.folder for one in mounts() if one.folder.startswith(f"{folder}/"))


def _call(number: int, *given: int | bytes) -> int:
    """Raises OSError."""
    result = _libc.syscall(number, *given)
    if result < 0:
        if ctypes.get_errno() == errno.ENOSYS:
            raise OSError(errno.ENOSYS, "volumes need Linux 5.2 or newer")
        _fail(None)
    return int(result)


def _fail(place: Path | None) -> None:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), *(() if place is None else (str(place),)))
