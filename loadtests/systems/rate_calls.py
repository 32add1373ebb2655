"""Calls of one deployment at a rate, on connections that are kept and on new ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.cluster.calls import Calls, calling
from tests.cluster.layout import node_address
from tests.cluster.release import GATEWAY_PORT

CALLERS = 20
_NODES = 2
_CALM_S = 2.0
"""How long they are asked before something happens to them."""


@asynccontextmanager
async def calls_at(rate_per_s: float, host: str) -> AsyncIterator[Calls]:
    """Calls `/greet` through both nodes until the block ends: half of the callers keep their
    connections, the others come anew each time. A caller asks again a fixed pause after its
    answer, so that the rate is what was asked only as long as answers are fast."""
    calls, every_s = Calls(host), CALLERS / rate_per_s
    callers = []
    for number in range(CALLERS):
        come = calls.keep if number % 2 else calls.come_anew
        callers.append(come(node_address(1 + number // 2 % _NODES), GATEWAY_PORT, every_s))
    async with calling(*callers):
        await asyncio.sleep(_CALM_S)
        yield calls
