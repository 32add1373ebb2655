"""A caller that sends nothing more: has it left, or does it wait for its answer?

Both look alike, for both sent a FIN. What is written tells them apart: a socket that was closed
answers with a reset, one that still reads does not. So an interim answer is written, which every
client of HTTP/1.1 passes over (RFC 9110, 15.2), and the socket is asked for a reset: at once, which
is enough on the same machine, then after a round trip of any length.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable, Sequence

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
GRACE_S = 0.02
"""Who has the answer by then need not be asked."""
LOOKS_S: Sequence[float] = (0.02, 0.08, 0.9)
"""From one look to the next ..."""
ASKS_S = 5.0
"""... and then how often it is asked again: it may leave later."""
LATER_S = 0.5
"""How often it is considered whether to ask, while nothing comes of it."""


class HalfClose:
    """Watches one connection. `waits` says whether an interim answer may be written and whether
    it matters; `left` is called when the caller turns out to be gone."""

    def __init__(
        self, descriptor: int, *, waits: Callable[[], bool], left: Callable[[], None]
    ) -> None:
        self._descriptor = descriptor
        self._waits = waits
        self._left = left
        self._loop = asyncio.get_running_loop()
        self._poll = select.poll()
        self._poll.register(descriptor, 0)  # resets are told whatever is asked for
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(GRACE_S, self._ask)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ask(self) -> None:
        self._timer = None
        if not self._waits():
            self._timer = self._loop.call_later(LATER_S, self._ask)
            return
        try:
            os.write(self._descriptor, CONTINUE)
        except BlockingIOError:
            pass  # it takes nothing, which is another matter
        except OSError:
            self._left()
            return
        self._look(0)

    def _look(self, looks: int) -> None:
        self._timer = None
        if self._poll.poll(0):
            self._left()
        elif looks < len(LOOKS_S):
            self._timer = self._loop.call_later(LOOKS_S[looks], self._look, looks + 1)
        else:
            self._timer = self._loop.call_later(ASKS_S, self._ask)
