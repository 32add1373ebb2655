"""Which processes there are, as /proc tells."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path


def start_time_of(pid: int) -> str:
    """When a process started: ticks since boot and the boot's id. Raises `ProcessLookupError`."""
    return stat_of(pid).start_time


def is_running(pid: int, start_time: str) -> bool:
    """Whether the process with this pid and start time has not ended."""
    try:
        stat = stat_of(pid)
    except ProcessLookupError:
        return False
    return stat.start_time == start_time and not stat.dead


@dataclass(frozen=True)
class Stat:
    """What we read of /proc/<pid>/stat."""

    state: str
    parent: int
    session: int
    start_time: str

    @property
    def dead(self) -> bool:
        return self.state in "ZX"


def stat_of(pid: int) -> Stat:
    """Raises `ProcessLookupError`."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None
    fields = text.rpartition(")")[2].split()  # the name before ")" may hold anything
    return Stat(
        state=fields[0],
        parent=int(fields[1]),
        session=int(fields[3]),
        start_time=f"{fields[19]}@{_boot_id()}",
    )


@functools.cache
def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def marked(variable: str, values: Collection[str]) -> list[int]:
    """Processes that were started with an environment where `variable` is one of `values`."""
    wanted = {f"{variable}={value}".encode() for value in values}
    found = []
    for pid in _pids():
        with contextlib.suppress(OSError):  # gone, or somebody else's
            if not wanted.isdisjoint(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")):
                found.append(pid)
    return found


def with_namespaces(pids: Collection[int]) -> set[int]:
    """These processes, and all in the namespaces of which some of them are the first.

    Not those of other namespaces: what they were started with, they may have been given there.
    """
    own = _namespace("self")
    made = {_namespace(pid) for pid in filter(is_first, pids)} - {""}
    inside = {pid for pid in _pids() if _namespace(pid) in made} if made else set()
    return inside | {pid for pid in pids if _namespace(pid) == own}


def _namespace(pid: int | str) -> str:
    """Of processes, in which it is; "" where that cannot be seen."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:  # gone, or somebody else's
        return ""


def runs(pid: int) -> bool:
    """Whether it is there, and no zombie."""
    try:
        return not stat_of(pid).dead
    except ProcessLookupError:
        return False


def session_members(session: int) -> list[int]:
    """Processes of the session that still run; zombies do not."""
    return [pid for pid, stat in _in_session(session) if not stat.dead]


def is_first(pid: int) -> bool:
    """Whether it is the first process of a namespace below ours."""
    return numbers_of(pid)[1:][-1:] == [1]


def numbers_of(pid: int) -> list[int]:
    """Its process ids: ours, and those in the namespaces below in which it is, outer ones first;
    none where it is not seen."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("NSpid:"):
                return list(map(int, line.split()[1:]))
    return []


def _in_session(session: int) -> Iterator[tuple[int, Stat]]:
    for pid in _pids():
        with contextlib.suppress(ProcessLookupError):
            stat = stat_of(pid)
            if stat.session == session:
                yield pid, stat
