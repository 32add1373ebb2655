"""Which users and groups of this machine those inside a program's walls are, where we are root.

The ranges lie where nobody else's do: above what systemd, `login.defs` and `/etc/subuid` give out,
below 2**31. Nothing notes which are taken but the owners of the programs' own folders.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from pathlib import Path

from hotplate.machine.foreign_folder import REMOVAL_S, ForeignFolder

BUILDS = 0x70000000
"""The first id of what no replica is: builds, which come and go."""
_SIZE = 65_536
SHARED = BUILDS + _SIZE
"""Of whose files are what all replicas may write, as `replica_writes` says: nobody runs as them."""
_END = 0x80000000
REPLICAS = (SHARED + _SIZE, _END)
"""All ids of replicas and standbys: from the first up to the second."""


def range_of(owner: int) -> int | None:
    """The first id of the range that the owner is in; None where it is in none."""
    return owner - owner % _SIZE if BUILDS <= owner < _END else None


def free_range(owners: Iterable[int], rng: random.Random) -> int:
    """The first id of a range that none of these owners is in, above those of builds and of shared
    files."""
    taken = {range_of(owner) for owner in owners}
    while (first := rng.randrange(*REPLICAS, _SIZE)) in taken:
        pass
    return first


def give(folder: Path, first: int) -> None:
    """Make a folder, and all that is in it, that range's first user's. Raises OSError.

    Links are not followed. A file with a second name is left alone: elsewhere it is somebody
    else's.
    """
    with ForeignFolder.open(folder, REMOVAL_S) as opened:
        opened.give(first, linked=False)


def take(folder: Path) -> None:
    """Make a folder, and all that is in it, ours. Raises OSError.

    From now on nobody changes a file under its other names either.
    """
    with ForeignFolder.open(folder, REMOVAL_S) as opened:
        opened.give(os.geteuid(), linked=True)
