"""Mounting, unmounting and finding mounts, by the kernel's own calls. Needs CAP_SYS_ADMIN."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import stat
import threading
from dataclasses import dataclass
from pathlib import Path

FILE_SYSTEM = "fuse.hotplate"
DEVICE = "/dev/fuse"

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOATIME = 0x1, 0x2, 0x4, 0x400
_MNT_DETACH = 0x2
"""From sys/mount.h."""

_ANSWER_S = 1.0
"""How long to wait for a view that may hang."""

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Mount:
    """A line of /proc/self/mountinfo."""

    device: str
    """`major:minor`."""
    folder: str
    file_system: str
    source: str


def mount(device: int, folder: Path, source: str) -> None:
    """Mounts what `device`, an open /dev/fuse, serves. Raises OSError."""
    owner = f"user_id={os.getuid()},group_id={os.getgid()}"
    options = f"fd={device},rootmode={stat.S_IFDIR:o},{owner},allow_other,default_permissions"
    flags = _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOATIME
    names = (source.encode(), bytes(folder), FILE_SYSTEM.encode())
    if _libc.mount(*names, ctypes.c_ulong(flags), options.encode()) != 0:
        raise _failure(f"{folder} cannot be mounted")


def unmount(source: str) -> None:
    """Detaches every mount of that source, even in use, and wherever it is by now.

    A folder above it may have been renamed. Raises OSError.
    """
    ours = [one for one in mounts() if (one.file_system, one.source) == (FILE_SYSTEM, source)]
    for one in reversed(ours):
        _detach(one.folder)


def sweep() -> None:
    """Unmounts the views of all agents whose daemons have died.

    A view that this user may not unmount stays.
    """
    for one in reversed(mounts()):
        if one.file_system == FILE_SYSTEM and _is_dead(one.folder):
            with contextlib.suppress(OSError):
                _detach(one.folder)


def mounts() -> list[Mount]:
    """All mounts, the topmost one last. Never accesses a mounted file system."""
    return list(map(_parse, Path("/proc/self/mountinfo").read_text("utf-8").splitlines()))


def mounted_at(folder: Path) -> list[Mount]:
    return [one for one in mounts() if one.folder == str(folder)]


def _detach(folder: str) -> None:
    """Raises OSError."""
    if _libc.umount2(os.fsencode(folder), _MNT_DETACH) != 0:
        raise _failure(f"{folder} cannot be unmounted")


def _is_dead(folder: str) -> bool:
    """Whether its daemon has ended; one that does not answer in time counts as alive."""
    errors: list[int | None] = []

    def ask() -> None:
        try:
            os.statvfs(folder)
        except OSError as exc:
            errors.append(exc.errno)

    asking = threading.Thread(target=ask, name="view-sweep", daemon=True)
    asking.start()
    asking.join(_ANSWER_S)
    return errors == [errno.ENOTCONN]


def read_ahead(folder: Path, size_bytes: int) -> None:
    """Sets how far the kernel reads ahead; does nothing where the setting may not be changed."""
    for one in mounted_at(folder)[-1:]:
        with contextlib.suppress(OSError):
            setting = Path(f"/sys/class/bdi/{one.device}/read_ahead_kb")
            setting.write_text(str(size_bytes >> 10), encoding="ascii")


def _parse(line: str) -> Mount:
    before, _, after = line.partition(" - ")
    fields, kind = before.split(" "), after.split(" ")
    return Mount(fields[2], _unescape(fields[4]), kind[0], _unescape(kind[1]))


def _unescape(text: str) -> str:
    r"""The kernel writes a blank in a name as \040."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _failure(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what} ({os.strerror(number)})")
