"""A simulated GPU of a replica: its work takes time, and more time when there is too much of it.

Up to `concurrency` handlers run at full speed; more slow each other down in proportion (processor
sharing), as they do on a GPU. None of them notices that its caller has left. Standard library
only: peers import it in their own environments.
"""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import itertools
import math
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

clock = time.perf_counter
"""The same in all processes of a machine. An event loop's own time may be in whole milliseconds."""


@dataclass(frozen=True)
class Stats:
    """What has run so far. Times are seconds of `clock`."""

    running: int = 0
    most: int = 0
    """Most handlers that ran at once."""
    begun: int = 0
    ended: int = 0
    first_at: float = 0.0
    """When the first handler began; 0 = none has."""
    back_p50_s: float = 0.0
    """From a handler's end to the beginning of the next one in its slot: the median."""
    back_most_s: float = 0.0


class Alarm:
    """Calls `ring` after a delay, exact to about 50 µs, which the loop's own timers are not."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        asyncio.get_running_loop().add_reader(self._file, self._fired)

    def set(self, delay_s: float) -> None:
        """Replaces the delay that was set before."""
        fraction, seconds = math.modf(max(delay_s, 1e-6))
        # struct itimerspec: an interval, which is none, and the delay.
        times = (ctypes.c_long * 4)(0, 0, int(seconds), int(fraction * 1e9))
        self._libc.timerfd_settime(self._file, 0, times, None)

    def _fired(self) -> None:
        try:
            os.read(self._file, 8)
        except BlockingIOError:  # it has been set again meanwhile
            return
        self._ring()


class Accelerator:
    """Runs work at a speed that depends on how much of it there is."""

    def __init__(self, concurrency: int) -> None:
        self._running = self._most = self._begun = self._ended = 0
        self._first_at = 0.0
        self._concurrency = concurrency
        self._done_s = 0.0
        """Seconds of work that each running handler would have got since the beginning."""
        self._since = clock()
        self._ends: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = itertools.count()
        self._freed: deque[float] = deque()
        """When each slot that is free was last used."""
        self._back_s: list[float] = []
        self._alarm = Alarm(self._finish)

    def begin(self, work_s: float, done: Callable[[], None]) -> None:
        """Call `done` when `work_s` seconds of work have been done."""
        self.enter()
        if work_s == 0 and not self._ends:
            self.leave()
            done()
            return
        self._advance(clock())
        heapq.heappush(self._ends, (self._done_s + work_s, next(self._serial), done))
        self._set_alarm()

    def enter(self) -> None:
        """A handler begins."""
        now = clock()
        if self._running:
            self._advance(now)
        if self._freed:
            self._back_s.append(now - self._freed.popleft())
        self._running += 1
        self._begun += 1
        self._most = max(self._most, self._running)
        self._first_at = self._first_at or now

    def leave(self) -> None:
        """A handler ends."""
        now = clock()
        if self._ends:
            self._advance(now)
        self._running -= 1
        self._ended += 1
        if self._running < self._concurrency:
            self._freed.append(now)

    def stats(self) -> Stats:
        back = sorted(self._back_s) or [0.0]
        return Stats(
            running=self._running,
            most=self._most,
            begun=self._begun,
            ended=self._ended,
            first_at=self._first_at,
            back_p50_s=back[len(back) // 2],
            back_most_s=back[-1],
        )

    @property
    def _speed(self) -> float:
        return min(1.0, self._concurrency / max(1, self._running))

    def _advance(self, now: float) -> None:
        self._done_s += (now - self._since) * self._speed
        self._since = now

    def _finish(self) -> None:
        """Ends the work that is done, and sets the alarm for the next."""
        self._advance(clock())
        while self._ends and self._ends[0][0] <= self._done_s + 1e-9:
            done = heapq.heappop(self._ends)[2]
            self.leave()
            done()
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self._ends:
            self._alarm.set((self._ends[0][0] - self._done_s) / self._speed)
