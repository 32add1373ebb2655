"""What a control group has used, as the kernel counts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class GroupUsage(NamedTuple):
    """None = the kernel does not say."""

    cpu_s: float | None = None
    """CPU time since the group was made."""
    memory_bytes: int | None = None
    """Without files that are cached and could be dropped at once."""


def usage_of(folders: Sequence[Path]) -> GroupUsage:
    """Of a group with these folders, one for each hierarchy. A few small files are read."""
    cpu_s: float | None = None
    memory_bytes: int | None = None
    for folder in folders:
        cpu_s = _cpu_s(folder) if cpu_s is None else cpu_s
        memory_bytes = _memory_bytes(folder) if memory_bytes is None else memory_bytes
    return GroupUsage(cpu_s, memory_bytes)


def _cpu_s(folder: Path) -> float | None:
    used_us = _figures(folder / "cpu.stat").get("usage_usec")
    if used_us is not None:  # version 2
        return used_us / 1e6
    used_ns = _number(folder / "cpuacct.usage")
    return None if used_ns is None else used_ns / 1e9


def _memory_bytes(folder: Path) -> int | None:
    used = _number(folder / "memory.current")
    cached = "inactive_file"
    if used is None:
        used, cached = _number(folder / "memory.usage_in_bytes"), "total_inactive_file"
    if used is None:
        return None
    return max(0, used - _figures(folder / "memory.stat").get(cached, 0))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _figures(path: Path) -> Mapping[str, int]:
    """The numbers in a file of lines with a name and a number."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split() for line in lines)
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}
