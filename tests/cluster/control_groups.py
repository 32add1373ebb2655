"""Control groups of the first version, in every hierarchy that the machine has."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_SECOND_VERSION = "unified"
"""Where it is beside the first one; runc makes a group there by itself."""


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """The group `name` at the root of each hierarchy."""

    name: str

    def make(self) -> None:
        """Makes it where it is not; a cpuset takes nothing in before it has cores and memory."""
        for folder in self._folders():
            if folder.parent.name == _SECOND_VERSION:
                continue
            folder.mkdir(exist_ok=True)
            for file in ("cpuset.cpus", "cpuset.mems"):
                given = folder / file
                if given.exists() and not given.read_text().strip():
                    given.write_text((folder.parent / file).read_text())

    def pids(self) -> Iterator[int]:
        """All processes in it and in the groups below it."""
        for procs in (_ROOT / "pids" / self.name).rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                yield from (int(line) for line in procs.read_text().split())

    def remove(self) -> None:
        """Removes it with all below it; what has processes still stays."""
        for folder in self._folders():
            for below in sorted(folder.rglob("*/"), reverse=True):
                with contextlib.suppress(OSError):
                    below.rmdir()
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _folders(self) -> Iterator[Path]:
        for hierarchy in sorted(_ROOT.iterdir()):
            if hierarchy.is_dir() and not hierarchy.is_symlink():
                yield hierarchy / self.name
