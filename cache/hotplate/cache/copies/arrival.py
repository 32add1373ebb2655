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
    cached: CachedBlob,
    place: ChunkDestination,
    *,
    contents: Contents,
    stall_s: float,
    local: LocalCopy | None,
    urgent: bool = False,
) -> None:
    """Returns when every chunk is in its place and verified. Raises what the fetch failed with.

    `local` is a copy on this node, which is tried first; without a new byte for `stall_s` the fetch
    fails.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[None] = loop.create_future()

    def arrived(index: int) -> None:
        if cached.verified(index):
            _call(loop, notice)

    def notice() -> None:
        cached.notify()
        if cached.complete and not outcome.done():
            outcome.set_result(None)

    def failed(error: CacheError) -> None:
        if not outcome.done():
            outcome.set_exception(error)

    chunks = Chunks(cached.name, len(cached.content.chunks), stall_s)
    chunks.whole = cached.whole
    order = FetchOrder(
        key=cached.swarm,
        content=cached.content,
        origin=cached.origin,
        chunks=chunks,
        destination=place,
        on_verified=arrived,
        on_failed=lambda error: _call(loop, failed, error),
        urgent=urgent,
        local=local,
        traffic=cached.traffic,
    )
    fetch = cached.fetch = contents.begin(order)
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
        cached.fetch = None


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: Any) -> None:
    """Calls on the loop, from a thread; does nothing once the loop has ended."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)
