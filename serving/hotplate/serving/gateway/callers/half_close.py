"""A caller that sends nothing more: has it left, or does it wait for its answer?

Both look alike, because both sent a FIN. A write tells them apart: a socket that was closed replies
with a reset, one that still reads does not. So an interim response is written, which every client
of HTTP/1.1 ignores (RFC 9110, 15.2), and the socket is checked for a reset: at once, which is
enough on the same machine, and then after longer and longer times.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable, Sequence

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
GRACE_S = 0.02
"""A caller that has its response by then need not be asked."""
LOOKS_S: Sequence[float] = (0.02, 0.08, 0.9)
"""Seconds from one check to the next ..."""
ASKS_S = 5.0
"""... and then how often the caller is asked again, as it may leave later."""
LATER_S = 0.5
"""How often `may_ask` is called while it returns False."""


class HalfClose:
    """Watches one connection. `may_ask` says whether an interim response may be written and
    matters; `on_gone` is called when the caller turns out to be gone."""

    def __init__(
        self, descriptor: int, *, may_ask: Callable[[], bool], on_gone: Callable[[], None]
    ) -> None:
        self._descriptor = descriptor
        self._may_ask = may_ask
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._poll = select.poll()
        self._poll.register(descriptor, 0)  # resets are reported in any case
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(GRACE_S, self._ask)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ask(self) -> None:
        self._timer = None
        if not self._may_ask():
            self._timer = self._loop.call_later(LATER_S, self._ask)
            return
        try:
            os.write(self._descriptor, CONTINUE)
        except BlockingIOError:
            pass  # it takes nothing, for which there is another time limit
        except OSError:
            self._on_gone()
            return
        self._look(0)

    def _look(self, looks: int) -> None:
        self._timer = None
        if self._poll.poll(0):
            self._on_gone()
        elif looks < len(LOOKS_S):
            self._timer = self._loop.call_later(LOOKS_S[looks], self._look, looks + 1)
        else:
            self._timer = self._loop.call_later(ASKS_S, self._ask)
