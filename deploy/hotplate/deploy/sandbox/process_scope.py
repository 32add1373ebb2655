"""What holds the processes of one attempt together: who they are, what they may use.

A control group where this user may make one, which the kernel enforces; else a watch over the
processes that carry the replica's marker in their environment, which is less exact and can be
escaped, but ends a replica that uses too much all the same.
"""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

from hotplate.deploy.process.detached import ProcessMembers
from hotplate.deploy.process.procfs import marked, with_namespaces
from hotplate.deploy.quantities import GIB

REPLICA_DIR = "HOTPLATE_REPLICA_DIR"
"""Names the replica's folder to its processes, and the processes to an engine that lost them."""

OOM_SCORE_LIMITED = 500
OOM_SCORE_FREE = 900
"""Whom the kernel ends first when memory is short: replicas before the platform (0), and those
that asked for no memory before those that use what they were promised."""

_RUN = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from hotplate.deploy.sandbox.launcher.{} import main; main()"
)
_IMPORTS = str(Path(__file__).parents[3])
"""Where that is found."""


class ProcessScope(ProcessMembers, Protocol):
    """Made before the first process of an attempt, removed after its last one."""

    @property
    def entry(self) -> Sequence[str]:
        """What the launcher is told so that a program runs inside: an OOM score, and the folders
        of control groups."""

    def enter(self, pid: int) -> None:
        """Have a process that runs be one of its. Raises OSError where it cannot be."""

    def used_bytes(self) -> int:
        """Memory of all its processes; 0 where there is no need to look."""

    def excess(self) -> str:
        """The sentence on a memory limit that was crossed; "" while none was."""

    def remove(self) -> None:
        """Give back what it takes, now that it is empty."""


class WatchedScope:
    """Without a control group: found by their environment, their memory added up."""

    def __init__(self, marks: Sequence[Path], limit_bytes: int) -> None:
        """`marks` are the replica's markers; `limit_bytes` 0 = no limit."""
        self._marks = [str(mark) for mark in marks]
        self._limit_bytes = limit_bytes
        self._excess = ""

    @property
    def entry(self) -> Sequence[str]:
        return entry((), self._limit_bytes)

    def enter(self, pid: int) -> None:
        raise OSError(errno.ENOTSUP, "there are no control groups")

    def members(self) -> Collection[int]:
        return with_namespaces(marked(REPLICA_DIR, self._marks))

    def used_bytes(self) -> int:
        """What only its processes have: file pages, the arena's too, are not theirs."""
        if not self._limit_bytes:
            return 0
        members = self.members()
        used = sum(map(private_bytes, members))
        if used > self._limit_bytes:  # pages that a fork shares are counted once only here
            used = sum(_kib(pid, "smaps_rollup", ("Pss_Anon", "SwapPss")) for pid in members)
        if used > self._limit_bytes:
            self._excess = over_limit(self._limit_bytes)
        return used

    def excess(self) -> str:
        return self._excess

    def seal(self) -> None:
        pass

    def remove(self) -> None:
        pass


def entry(groups: Sequence[Path], limit_bytes: int) -> Sequence[str]:
    """Of a program in these groups with this limit; 0 = none."""
    return (str(oom_score(limit_bytes)), *map(str, groups))


def launcher_argv(entry: Sequence[str]) -> Sequence[str]:
    """The command that enters a scope and, after three words, becomes what follows it."""
    return (*launcher("bootstrap"), *entry, "--")


def launcher(module: str) -> Sequence[str]:
    """The command that runs a module of the launcher; its arguments follow."""
    return (sys.executable, "-I", "-S", "-c", _RUN.format(module), _IMPORTS)


def oom_score(limit_bytes: int) -> int:
    """Of a replica with this limit; 0 = none."""
    return OOM_SCORE_LIMITED if limit_bytes else OOM_SCORE_FREE


def over_limit(limit_bytes: int) -> str:
    """Said of a replica that was ended for its own limit."""
    return (
        f"killed: it used more than its {amount(limit_bytes)} of memory (resources.memory); "
        "ask for more or use less"
    )


def over_capacity(capacity_bytes: int) -> str:
    """Said of a replica that was ended because all of them together used too much."""
    return (
        f"killed: this machine's memory ran out (replicas may use {amount(capacity_bytes)} of it "
        "together); state what each needs (resources.memory), or run fewer"
    )


def amount(size_bytes: int) -> str:
    """256 MiB, 1.5 GiB."""
    if size_bytes >= GIB:
        return f"{round(size_bytes / GIB, 1):g} GiB"
    return f"{round(size_bytes / (1 << 20), 1):g} MiB"


def private_bytes(pid: int) -> int:
    """Memory that only this process has; 0 when it is gone."""
    return _kib(pid, "status", ("RssAnon", "VmSwap"))


def _kib(pid: int, name: str, fields: Collection[str]) -> int:
    """Bytes in these lines of a file of /proc/<pid>; 0 for a process that is gone."""
    total = 0
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/{name}").read_text().splitlines():
            field, _, value = line.partition(":")
            if field in fields:
                total += int(value.split()[0]) << 10
    return total
