"""Which users and groups of this machine those inside a program's walls are, where we are root.

The ranges lie where nobody else's do: above what systemd, `login.defs` and `/etc/subuid` give out,
below 2**31. Nothing notes which are taken but the owners of the programs' own folders.
"""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

BUILDS = 0x70000000
"""The first id of what no replica is: builds, which come and go."""
_SIZE = 65_536
_END = 0x80000000


def range_of(owner: int) -> int | None:
    """The first id of the range that the owner is in; None where it is in none."""
    return owner - owner % _SIZE if BUILDS <= owner < _END else None


def free_range(owners: Iterable[int], rng: random.Random) -> int:
    """The first id of a range that none of these owners is in, and that is not that of builds."""
    taken = {range_of(owner) for owner in owners}
    while (first := rng.randrange(BUILDS + _SIZE, _END, _SIZE)) in taken:
        pass
    return first


def give(folder: Path, first: int) -> None:
    """Make a folder, and all that is in it, that range's first user's. Raises OSError.

    Links are not followed. A file with a second name is left alone: elsewhere it is somebody
    else's.
    """
    _own(folder, first, lambda about: stat.S_ISREG(about.st_mode) and about.st_nlink > 1)


def take(folder: Path) -> None:
    """Make a folder, and all that is in it, ours. Raises OSError.

    Whatever other names a file has: from now on nobody changes it under them either.
    """
    _own(folder, os.geteuid(), lambda about: False)


def _own(folder: Path, owner: int, spared: Callable[[os.stat_result], bool]) -> None:
    for _, folders, files, descriptor in os.fwalk(folder):
        os.chown(descriptor, owner, owner)
        for name in (*folders, *files):
            about = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if about.st_uid != owner and not spared(about):
                os.chown(name, owner, owner, dir_fd=descriptor, follow_symlinks=False)
