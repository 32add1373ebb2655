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
_ASK_EVERY_S = 0.1
"""What is awaited asks another process, which has other things to do."""


@overload
async def until(condition: Callable[[], Awaitable[T]], timeout_s: float = PATIENCE_S) -> T: ...
@overload
async def until(condition: Callable[[], T], timeout_s: float = PATIENCE_S) -> T: ...
async def until(condition: Callable[[], object], timeout_s: float = PATIENCE_S) -> object:
    """Waits until the condition is true, and gives what it said; TimeoutError after `timeout_s`.

    It is asked again and again, as nothing tells of what it asks.
    """
    pause_s = _LOOK_EVERY_S
    async with asyncio.timeout(timeout_s):
        while True:
            said = condition()
            if inspect.isawaitable(said):
                said, pause_s = await said, min(2 * pause_s, _ASK_EVERY_S)
            if said:
                return said
            await asyncio.sleep(pause_s)
