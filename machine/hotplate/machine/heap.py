"""How much memory this process keeps that it no longer uses."""

from __future__ import annotations

import ctypes

ARENAS = 2
"""The main one, and one for all threads."""
LARGE_BYTES = 2 << 20
"""From so many bytes on, a block is mapped of its own and goes back to the kernel with its end.

What a connection or a file is read into is smaller (256 KiB, 1 MiB): to map each anew would take
more, in page faults, than to copy and to hash it (0.5 and 0.13 CPU s a GiB, measured in November
2026 on two cores)."""
KEPT_BYTES = 2 * LARGE_BYTES
"""The most that is kept free at an arena's end: twice as much, as glibc has it by itself."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Of glibc's malloc.h."""


def keep_little() -> bool:
    """Has malloc keep little of what is free; whether it does. Call it before the first thread is
    started.

    By default glibc makes an arena for each new thread, up to eight times the cores, and whenever a
    large block is freed, blocks up to that size come from an arena from then on, which keeps twice
    as much (mallopt(3): M_ARENA_MAX, M_MMAP_THRESHOLD). Each arena keeps what its largest moment
    took, and threads of a pool take calls in turn: a process grows for hours that holds no more
    than before. What separate arenas are for, threads that allocate at the same time, is rare in
    Python: it does so under its lock.

    Other C libraries have no such settings (musl, macOS): nothing happens there.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    settings = (
        (_M_ARENA_MAX, ARENAS),
        (_M_MMAP_THRESHOLD, LARGE_BYTES),
        (_M_TRIM_THRESHOLD, KEPT_BYTES),
    )
    return all([bool(mallopt(name, value)) for name, value in settings])
