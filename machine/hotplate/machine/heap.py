"""How much memory this process keeps that it no longer uses."""

from __future__ import annotations

import ctypes

ARENAS = 2
"""The main one, and one for all threads."""
_M_ARENA_MAX = -8
"""Of glibc's malloc.h."""


def share_arenas() -> bool:
    """Has all threads from now on share two arenas of malloc; whether that is so. Call it before
    the first thread is started.

    By default glibc makes an arena for each new thread, up to eight times the cores (mallopt(3),
    M_ARENA_MAX), and each keeps what its largest moment took. Threads of a pool take calls in turn,
    so one after the other reaches the largest of them, and a process grows for hours that holds no
    more than before. What separate arenas are for, threads that allocate at the same time, is rare
    in Python: it does so under its lock.

    Other C libraries have no arenas (musl), or no such limit: nothing happens there.
    """
    try:
        return bool(ctypes.CDLL(None).mallopt(_M_ARENA_MAX, ARENAS))
    except AttributeError:
        return False
