"""What there is of the environments of a node, and the output of their builds. Does file I/O.

What builds have written is read as anybody's: through `foreign_folder`, up to a limit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hotplate.machine import foreign_folder
from hotplate.serving.replica.environments.folder import EnvironmentFolder
from hotplate.serving.replica.environments.usage import Usage
from hotplate.serving.replica.inside.building.step import MOST_LOG_BYTES, TAIL_BYTES, TAIL_LINES

BUILDING, READY, FAILED = "building", "ready", "failed"


@dataclass(frozen=True)
class EnvironmentView:
    """One environment."""

    owner: str
    """The name of its organization's folder."""
    digest: str
    state: str
    bentos: frozenset[str]
    """The manifests of the bentos that have used it."""
    used_at: float
    """When the last of them began to, Unix seconds."""
    size_bytes: int
    """0 of one that another node has built: its files are that node's, or the agent's."""
    built_at: float | None
    """When it was ready, Unix seconds; None where it is not."""
    build_s: float | None
    """How long its build took; None where it is not known, or another node has built it."""
    log_tail: tuple[str, ...]
    """The last lines of its build."""


class EnvironmentOverview:
    """Those below one folder."""

    def __init__(self, root: Path, building: Callable[[], Set[Path]]) -> None:
        self._root = root
        self._building = building
        self._sizes: dict[tuple[Path, float], int] = {}
        """What was read of folders that no longer change, by when they were built."""

    def views(self, owners: Iterable[str]) -> list[EnvironmentView]:
        """All in these folders, those first that were used last."""
        found = [view for owner in owners for view in self._of(owner)]
        return sorted(found, key=lambda view: (-view.used_at, view.owner, view.digest))

    def build_log(self, owners: Iterable[str], bento: str) -> tuple[EnvironmentView, str] | None:
        """The environment in these folders that a bento has used last, and the whole output of its
        build; None where there is none."""
        for view in self.views(owners):
            if bento in view.bentos:
                folder = EnvironmentFolder(self._root / view.owner / view.digest)
                with suppress(OSError):
                    content = foreign_folder.read(folder.log, MOST_LOG_BYTES)
                    return view, content.decode(errors="replace")
                return view, ""
        return None

    def _of(self, owner: str) -> Iterator[EnvironmentView]:
        for use in Usage(self._root / owner / ".used").read():
            path = self._root / owner / use.environment
            folder = EnvironmentFolder(path)
            built_at, build_s = folder.built()
            yield EnvironmentView(
                owner,
                use.environment,
                self._state(path, ready=built_at is not None),
                use.bentos,
                use.last_at,
                0 if built_at is None else self._size(path, built_at),
                built_at,
                build_s,
                log_tail(folder.log),
            )

    def _state(self, path: Path, *, ready: bool) -> str:
        if path in self._building():
            return BUILDING
        return READY if ready else FAILED

    def _size(self, path: Path, built_at: float) -> int:
        key = path, built_at
        if key not in self._sizes:
            self._sizes[key] = foreign_folder.tree_bytes(path)
        return self._sizes[key]


def log_tail(log: Path) -> tuple[str, ...]:
    """The last lines of a build's output; none where there is no such file."""
    with suppress(OSError), os.fdopen(foreign_folder.open_file(log), "rb") as file:
        size_bytes = file.seek(0, os.SEEK_END)
        file.seek(max(0, size_bytes - TAIL_BYTES))
        return tuple(file.read().decode(errors="replace").splitlines()[-TAIL_LINES:])
    return ()
