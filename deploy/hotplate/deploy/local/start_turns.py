"""A few replicas of one machine at a time are prepared and get their processes.

All of that is work of this one process. Were it done for many side by side, none of them would have
its process before nearly all are prepared, and the other cores would have nothing to do meanwhile.
One after another, the first ones start while the next are prepared; the last ones gain nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

AT_ONCE = 2
"""What one has its disk or its template for, another has this process for."""
LONGEST_S = 0.5
"""A turn that lasts longer is over all the same, and what it was for goes on: an environment may
have to be built, or files to be fetched."""


class StartTurns:
    """Taken in the order in which they are asked for."""

    def __init__(self, at_once: int = AT_ONCE, longest_s: float = LONGEST_S) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._longest_s = longest_s

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Within it is somebody's turn, `longest_s` at most."""
        await self._free.acquire()
        with ExitStack() as turn:
            turn.callback(self._free.release)
            over = asyncio.get_running_loop().call_later(self._longest_s, turn.close)
            turn.callback(over.cancel)
            yield
