"""Rings at a moment, also in a process that was stopped until long after.

It is the kernel's timer, which goes on while the process is stopped: when that is continued, or its
event loop comes out of whatever it hung in, the alarm is there before anything else of it is run.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn


class Watchdog:
    """Of the main thread of a process; there is one alarm."""

    def __init__(self, clock: Callable[[], float], bark: Callable[[float], None]) -> None:
        """`bark` gets the moment, in seconds of the clock, which is steady."""
        self._clock = clock
        self._bark = bark
        self._watches = False

    def bark_at(self, when: float) -> None:
        """At that moment, in place of any other."""
        if not self._watches:
            signal.signal(signal.SIGALRM, lambda *_: self._bark(self._clock()))
            self._watches = True
        signal.setitimer(signal.ITIMER_REAL, max(when - self._clock(), 1e-3))

    def rest(self) -> None:
        """Bark no more."""
        if self._watches:
            signal.setitimer(signal.ITIMER_REAL, 0)


def begin_anew(why: str) -> NoReturn:
    """Be the same program again, from its start: nothing that this one had in mind is done. Its
    children stay its children."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    # Not by the log, whose lock another thread may have.
    os.write(2, f"hotplate: this control plane no longer acts, and begins anew: {why}\n".encode())
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
