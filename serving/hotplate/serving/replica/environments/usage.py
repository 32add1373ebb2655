"""Which bentos have used which environment, and which environments may be removed."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Set
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Use:
    """The recorded use of one environment."""

    environment: str
    bentos: frozenset[str]
    last_at: float
    """Unix seconds."""


def removable(
    uses: Iterable[Use], wanted: Set[str], spare: int, used_before: float = math.inf
) -> dict[str, str]:
    """The environments that may be removed, with the reason: those that no `wanted` bento uses, and
    that were used last before that moment (Unix seconds). The `spare` ones that were used last
    stay, because the next deploy is often like one of the last, and to build them again takes
    long."""
    idle = sorted(
        (use for use in uses if not use.bentos & wanted),
        key=lambda use: (-use.last_at, use.environment),
    )
    reason = f"no deployment uses it, and {spare} that nobody uses were used later"
    last = idle[max(0, spare) :]
    return {use.environment: reason for use in last if use.last_at < used_before}


class Usage:
    """The record: a file `<root>/<environment>/<bento>`, as old as the last use. Does file I/O."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def note(self, environment: str, bento: str) -> bool:
        """Records that the bento uses the environment now; whether it does so for the first
        time."""
        folder = self._root / environment
        folder.mkdir(parents=True, exist_ok=True)
        first = not (folder / bento).exists()
        (folder / bento).touch()
        return first

    def forget(self, environment: str) -> None:
        """Removes the records of an environment."""
        folder = self._root / environment
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()

    def trim(self, environment: str, wanted: Set[str]) -> None:
        """Removes the records of bentos that are no longer wanted. The time of the latest use stays
        on record: with one that is wanted, else with its own."""
        files = sorted((self._root / environment).iterdir(), key=_used_at)
        kept = [file for file in files if file.name in wanted] or files[-1:]
        for file in kept[-1:]:
            os.utime(file, (latest := _used_at(files[-1]), latest))
        for file in set(files) - set(kept):
            file.unlink()

    def read(self) -> list[Use]:
        """Every environment with a recorded use."""
        if not self._root.exists():
            return []
        uses = []
        for folder in self._root.iterdir():
            times = {file.name: file.stat().st_mtime for file in folder.iterdir()}
            uses.append(Use(folder.name, frozenset(times), max(times.values(), default=0.0)))
        return uses


def _used_at(file: Path) -> float:
    return file.stat().st_mtime
