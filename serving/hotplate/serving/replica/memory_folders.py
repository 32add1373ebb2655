"""Where the files of secrets lie: in memory, and for one replica or build only.

Within walls each program has a `/dev/shm` of its own, which ends with it. Without, they are folders
of the platform's user in the machine's, and are removed once what they are for has ended.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from blake3 import blake3

from hotplate.machine import foreign_folder
from hotplate.serving.replica.inside.secret_files import OWNER

MEMORY = Path("/dev/shm")
_PREFIX = "hotplate-secrets"
_PATH_BYTES = 4096


def memory_folder(directory: Path, *, walled: bool) -> Path:
    """The folder in memory for what runs with that directory."""
    if walled:
        return MEMORY / _PREFIX
    known_as = blake3(str(directory).encode()).hexdigest(length=16)
    return MEMORY / f"{_PREFIX}-{os.getuid()}-{known_as}"


async def remove_memory(directory: Path) -> None:
    """Remove it, where it is one of the machine's memory."""
    folder = memory_folder(directory, walled=False)
    with suppress(OSError):
        await foreign_folder.aside_for_long(foreign_folder.remove_tree, folder)


async def sweep_memory() -> None:
    """Remove those of what is gone: an earlier control plane was killed before it could."""
    with suppress(OSError):
        await foreign_folder.aside_for_long(_sweep)


def _sweep() -> None:
    for folder in MEMORY.glob(f"{_PREFIX}-{os.getuid()}-*"):
        with suppress(OSError):
            owner = foreign_folder.read(folder / OWNER, _PATH_BYTES)
            if not os.path.exists(owner):
                foreign_folder.remove_tree(folder)
