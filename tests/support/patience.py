"""How long a test waits for what must come before it says that it has not.

What is tested is that it comes: a machine may be slower than ours, or have other things to do.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")

PATIENCE_S = 60.0
_LOOK_EVERY_S = 0.005
_ASK_EVERY_S, _ASK_AT_LEAST_EVERY_S = 0.1, 0.5
"""What is awaited asks another process, which has other things to do."""
_PAUSE_PER_ASKING = 4.0
"""Some ask by a program: they leave most of the time to others."""


@overload
async def until(condition: Callable[[], Awaitable[T]], timeout_s: float = PATIENCE_S) -> T: ...
@overload
async def until(condition: Callable[[], T], timeout_s: float = PATIENCE_S) -> T: ...
async def until(condition: Callable[[], object], timeout_s: float = PATIENCE_S) -> object:
    """Waits until the condition is true, and gives what it said; TimeoutError after `timeout_s`.

    It is asked again and again, as nothing tells of what it asks.
    """
    pause_s, now = _LOOK_EVERY_S, asyncio.get_running_loop().time
    async with asyncio.timeout(timeout_s):
        while True:
            began, said = now(), condition()
            if inspect.isawaitable(said):
                said = await said
                pause_s = pause_after(now() - began, min(2 * pause_s, _ASK_EVERY_S))
            if said:
                return said
            await asyncio.sleep(pause_s)


def pause_after(asking_s: float, least_s: float) -> float:
    """How long to wait before it is asked again what took so long to be asked."""
    return max(least_s, min(_PAUSE_PER_ASKING * asking_s, _ASK_AT_LEAST_EVERY_S))
