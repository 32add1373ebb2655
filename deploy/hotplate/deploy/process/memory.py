"""How much memory processes take, as /proc tells.

What is forked shares its pages with what has forked it, and every process of an environment the
files of its libraries. The resident size (RSS) counts such a page once for each process; the
proportional size (PSS, proc(5)) divides it among them, so that sums over processes are true.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

_SHARED_BYTES = 1 << 20
"""Below this it is not worth a second look whose shared memory a process has."""

LONGEST_S = 0.5
"""Of CPU time, for what a replica has started: thousands of forks that share much must not keep the
others' figures from being read."""

_Sizes = Mapping[str, int]


class Memory(NamedTuple):
    """What some processes take, in bytes."""

    own_bytes: int = 0
    """Their own: a page that n processes share counts as 1/n of it."""
    alone_bytes: int = 0
    """What they would take if they shared nothing with others; about what a cold start takes."""


def memory_of(
    pids: Iterable[int], proc: Path = Path("/proc"), longest_s: float = LONGEST_S
) -> Memory:
    """All of these together; a process that has ended meanwhile counts nothing.

    The kernel walks the pages: 15 ms of CPU for each GiB that is mapped. Shared memory that they
    only read, as the arena of model files, is somebody else's. Where the kernel tells no
    proportional sizes, resident ones stand in, which are never less; and so they do for those that
    are left after `longest_s` of CPU time.
    """
    own_bytes = alone_bytes = 0
    began = time.thread_time()
    for pid in pids:
        one = _of_one(proc / str(pid), walked=time.thread_time() - began < longest_s)
        own_bytes += one.own_bytes
        alone_bytes += one.alone_bytes
    return Memory(own_bytes, alone_bytes)


def _of_one(folder: Path, *, walked: bool) -> Memory:
    try:
        pages = _sizes(folder / "status")
    except OSError:  # it has ended
        return Memory()
    resident_bytes = _sum(pages, ("RssAnon", "RssFile", "VmSwap"))
    try:
        rollup = _sizes(folder / "smaps_rollup") if walked else {}
        shared_bytes = rollup.get("Pss_Shmem", 0)
        proportional_bytes = rollup["Pss"] + rollup.get("SwapPss", 0) - shared_bytes
        if shared_bytes >= _SHARED_BYTES:
            shared_bytes = min(shared_bytes, _written_by(folder))
    except (OSError, KeyError):  # refused, not told, too dear, or it has ended
        shared_bytes = pages.get("RssShmem", 0)
        proportional_bytes = resident_bytes
    return Memory(proportional_bytes + shared_bytes, resident_bytes + shared_bytes)


def _written_by(folder: Path) -> int:
    """Its part of what it maps to share and to write; files that it maps so are counted too."""
    total_bytes, counts = 0, False
    with (folder / "smaps").open(errors="replace") as lines:
        for line in lines:
            name, *rest = line.split()
            if not name.endswith(":"):  # a mapping: its addresses, then `rw-s` and the like
                counts = rest[0][1] == "w" and rest[0][3] == "s"
            elif counts and name == "Pss:":
                total_bytes += int(rest[0]) << 10
    return total_bytes


def _sum(sizes: _Sizes, names: Collection[str]) -> int:
    return sum(sizes.get(name, 0) for name in names)


def _sizes(path: Path) -> _Sizes:
    """Those of its lines that are `Name: NUMBER kB`, in bytes. Raises OSError."""
    lines = (line.split() for line in path.read_text(errors="replace").splitlines())
    return {
        words[0].rstrip(":"): int(words[1]) << 10
        for words in lines
        if len(words) == 3 and words[2] == "kB"
    }
