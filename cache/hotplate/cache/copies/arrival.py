"""The chunks of one blob on their way into their place, as the event loop sees them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from hotplate.cache.copies.cached_blob import CachedBlob
from hotplate.cache.errors import CacheError
from hotplate.cache.fetching.contents import Contents
from hotplate.cache.fetching.fetch import ChunkDestination, FetchOrder, LocalCopy
from hotplate.cache.swarm.chunks import Chunks


async def fetch_into(
    holding: CachedBlob,
    place: ChunkDestination,
    contents: Contents,
    *,
    stall_s: float,
    local: LocalCopy | None,
    urgent: bool = False,
) -> None:
    """Returns when every chunk is in its place and verified. Raises what the fetch failed with.

    `local` is a copy on this node, which is tried first; `stall_s` is how long nothing may come.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[None] = loop.create_future()

    def arrived(index: int) -> None:
        if holding.verified(index):
            _call(loop, notice)

    def notice() -> None:
        holding.notify()
        if holding.complete and not outcome.done():
            outcome.set_result(None)

    def failed(error: CacheError) -> None:
        if not outcome.done():
            outcome.set_exception(error)

    chunks = Chunks(holding.name, len(holding.content.chunks), stall_s)
    chunks.whole = holding.whole
    order = FetchOrder(
        key=holding.swarm,
        content=holding.content,
        origin=holding.origin,
        chunks=chunks,
        destination=place,
        on_verified=arrived,
        on_failed=lambda error: _call(loop, failed, error),
        urgent=urgent,
        local=local,
        traffic=holding.traffic,
    )
    fetch = holding.fetch = contents.begin(order)
    try:
        while not outcome.done():
            at = fetch.stalls_at()
            timeout_s = stall_s if at is None else max(0.0, at - loop.time())
            await asyncio.wait({outcome}, timeout=timeout_s)
            if not outcome.done() and (error := contents.stalled(fetch)) is not None:
                raise error
        outcome.result()
    finally:
        contents.cancel(fetch)
        holding.fetch = None


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: Any) -> None:
    """Calls on the loop, from a thread; says nothing when the loop has ended."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)
