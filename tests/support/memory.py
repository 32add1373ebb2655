"""The memory of processes while something happens to them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

EVERY_S = 0.2
_KIB = 1024
_PROPORTIONAL = {"Pss": "pss", "Pss_Anon": "anonymous", "Pss_File": "files", "Pss_Shmem": "shared"}
"""Names in /proc/<pid>/smaps_rollup, and ours: a page that n processes share counts 1/n."""


class Watch:
    """Peaks in bytes by name: `resident` is the kernel's own high-water mark, exact and with all
    that is mapped; the others are sampled."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = pids
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.peaks: dict[str, dict[str, int]] = {name: {} for name in pids}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(EVERY_S):
            for name, pid in self._pids.items():
                for what, size_bytes in memory_of(pid).items():
                    self.peaks[name][what] = max(self.peaks[name].get(what, 0), size_bytes)


def memory_bytes(pid: int) -> int:
    """Memory of a process; what it shares with others counts in part."""
    return _fields(Path(f"/proc/{pid}/smaps_rollup"))["Pss"]


def tree_bytes(pid: int) -> int:
    """Memory of a process and of all that it has started, and those."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return memory_bytes(pid) + sum(tree_bytes(int(child)) for child in children)


def memory_of(pid: int) -> dict[str, int]:
    """By the names of `Watch.peaks`; nothing of a process that is gone."""
    found: dict[str, int] = {}
    with suppress(OSError):
        found["resident"] = _fields(Path(f"/proc/{pid}/status"))["VmHWM"]
        proportional = _fields(Path(f"/proc/{pid}/smaps_rollup"))
        found |= {ours: proportional[theirs] for theirs, ours in _PROPORTIONAL.items()}
    return found


def _fields(path: Path) -> dict[str, int]:
    """Those of its lines that are `Name: NUMBER kB`, in bytes."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {
        words[0].rstrip(":"): int(words[1]) * _KIB
        for words in lines
        if len(words) == 3 and words[2] == "kB"
    }
