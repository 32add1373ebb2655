"""What a replica uses up while it runs: room on the disk for its log, and memory."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from hotplate.deploy.process import logfile
from hotplate.deploy.sandbox.process_scope import ProcessScope

MEMORY_PAUSE_S = 0.5
"""Between two looks at a quiet replica: what can fill 1 GB in a second has used half of it."""
LOG_PAUSE_S = 0.1
"""Shorter, for a look costs microseconds and the disk is everybody's: what writes 500 MB in a
second is seen before its log has its 64 MiB."""
SHORTEST_PAUSE_S = 0.02
"""Between two looks at one that goes fast: a look costs well below a millisecond."""


class UsagePace:
    """How soon to look again at an amount that grows towards a limit; pure."""

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._last: tuple[float, float] | None = None

    def pause_s(self, amount: float, limit: float, now: float) -> float:
        """Half the time in which what is left would be used up at the last speed."""
        last, self._last = self._last, (amount, now)
        if last is None or now <= last[1] or amount <= last[0]:
            return self._longest_s
        speed = (amount - last[0]) / (now - last[1])
        pause_s = max(0.0, limit - amount) / speed / 2
        return min(max(pause_s, SHORTEST_PAUSE_S), self._longest_s)


async def keep_short(log: Path) -> None:
    """Cut the log whenever it has grown too long, for ever."""
    pace = UsagePace(LOG_PAUSE_S)
    while True:
        size_bytes = 0
        with contextlib.suppress(OSError):  # a full disk is no fault of this replica
            size_bytes = logfile.trim(log)
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(pace.pause_s(size_bytes, logfile.MAX_BYTES, now))


async def until_excess(scope: ProcessScope, limit_bytes: int) -> str:
    """The sentence on why the replica has to be ended, once it has; `limit_bytes` 0 is none."""
    pace = UsagePace(MEMORY_PAUSE_S)
    while not (excess := scope.excess()):
        pause_s = MEMORY_PAUSE_S
        if limit_bytes:
            used = scope.used_bytes()
            pause_s = pace.pause_s(used, limit_bytes, asyncio.get_running_loop().time())
            if scope.excess():
                continue
        await asyncio.sleep(pause_s)
    return excess
