"""The logs of replicas that are gone: the last ones, each with a mark of whose it was.

`<dir>/<id>.<mark>.log`; older versions of us wrote `<dir>/<id>.log`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Set
from pathlib import Path

from blake3 import blake3

ENDED_LOGS_KEPT = 20
NOBODY = "nobody"
"""The mark of a log of which it is not known whose it is."""


class EndedLogs:
    """Those of one engine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, replica: str) -> Path | None:
        """The log of one that has ended lately; None if there is none."""
        names = (name for name in os.listdir(self._folder) if name.endswith(".log"))
        found = next((name for name in names if name.split(".")[0] == replica), None)
        return None if found is None else self._folder / found

    def keep(self, replica: str, log: Path, owner: str | None) -> None:
        """Move it here, where only the last ones stay. `owner` is its workload's `owned_by`."""
        mark = NOBODY if owner is None else _mark(owner)
        with contextlib.suppress(FileNotFoundError):
            kept = log.rename(self._folder / f"{replica}.{mark}.log")
            os.utime(kept)  # sorts it by its end: its last line may be old
        logs = sorted(self._folder.iterdir(), key=_ended_at)
        for old in logs[:-ENDED_LOGS_KEPT]:
            old.unlink(missing_ok=True)

    def forget(self, owners: Set[str]) -> None:
        """Remove those that were none of these owners'."""
        kept = {NOBODY, *map(_mark, owners)}
        for log in self._folder.iterdir():
            _, *mark, _ = log.name.split(".")
            if mark and mark[0] not in kept:
                log.unlink(missing_ok=True)


def _mark(owner: str) -> str:
    return blake3(owner.encode(errors="surrogatepass")).hexdigest(8)


def _ended_at(log: Path) -> int:
    try:
        return log.stat().st_mtime_ns
    except FileNotFoundError:  # another replica that ends now has just removed it
        return 0
