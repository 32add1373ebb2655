"""What a replica uses up while it runs: room on the disk for its log, and memory."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from hotplate.deploy import logfile
from hotplate.deploy.enclosure import Enclosure

LONGEST_PAUSE_S = 0.5
"""Between two looks at a quiet replica: what can fill 1 GB in a second has used half of it."""
SHORTEST_PAUSE_S = 0.05
"""Between two looks at one that goes fast: a look costs well below a millisecond."""


class Pace:
    """How soon to look again at an amount that grows towards a limit; pure."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def pause_s(self, amount: float, limit: float, now: float) -> float:
        """Half the time in which what is left would be used up at the last speed."""
        last, self._last = self._last, (amount, now)
        if last is None or now <= last[1] or amount <= last[0]:
            return LONGEST_PAUSE_S
        speed = (amount - last[0]) / (now - last[1])
        pause_s = max(0.0, limit - amount) / speed / 2
        return min(max(pause_s, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)


async def until_excess(log: Path, enclosure: Enclosure, limit_bytes: int) -> str:
    """Keep the log short; return the sentence on why the replica has to be ended, once it has.

    `limit_bytes` is its memory's, 0 for none.
    """
    loop = asyncio.get_running_loop()
    log_pace, memory_pace = Pace(), Pace()
    while not (excess := enclosure.excess()):
        size_bytes = 0
        with contextlib.suppress(OSError):  # a full disk is no fault of this replica
            size_bytes = logfile.trim(log)
        pauses = [log_pace.pause_s(size_bytes, logfile.MAX_BYTES, loop.time())]
        if limit_bytes:
            used = enclosure.used_bytes()
            pauses.append(memory_pace.pause_s(used, limit_bytes, loop.time()))
            if enclosure.excess():
                continue
        await asyncio.sleep(min(pauses))
    return excess
