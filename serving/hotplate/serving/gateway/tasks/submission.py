"""A submitted task on its way to the control plane, as it comes from its caller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hotplate.serving.gateway.tasks.control_plane_exchange import TaskExchange


async def submission(exchange: TaskExchange) -> AsyncIterator[bytes]:
    """The frame, in pieces."""
    yield exchange.begin_submission()
    while pieces := await exchange.more():
        for piece in pieces:
            yield piece
