"""The control groups of a program, and how soon the kernel ends it: entered before all else."""

from __future__ import annotations

from _collections_abc import Sequence


def enter_scope(score: str, groups: Sequence[str]) -> None:
    """Raises OSError."""
    write("/proc/self/oom_score_adj", score)  # raising one's own is always allowed
    for group in groups:
        write(f"{group}/cgroup.procs", "0")


def write(path: str, text: str) -> None:
    """To a file of the kernel's. Raises OSError."""
    with open(path, "w") as file:
        file.write(text)
