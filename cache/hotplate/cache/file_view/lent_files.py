"""What the agent lends to the file view's daemon. `packet_link.py` documents the messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any

from hotplate.cache.catalog.pulls import Pulls
from hotplate.cache.catalog.trees import Trees
from hotplate.cache.copies.cached_blob import CachedBlob
from hotplate.cache.errors import CacheError, VersionChanged
from hotplate.cache.file_view.packet_link import PacketLink
from hotplate.cache.origins.locations import Version

_CHUNKS_PER_PACKET = 8192
_URLS_PER_PACKET = 32
"""A packet has room for this many chunk numbers, or for this many of the longest URLs."""


class LentFiles:
    """The files that the daemon has on loan, by its numbers. Lives on the event loop."""

    def __init__(self, trees: Trees, pulls: Pulls, link: PacketLink) -> None:
        self._trees = trees
        self._pulls = pulls
        self._link = link
        self._shown: dict[str, Version] = {}
        """The files of URLs that the daemon knows of, by their keys."""
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._sending_urls: asyncio.Task[None] | None = None
        self._lent: dict[int, CachedBlob] = {}

    def receive(self, message: dict[str, Any]) -> None:
        if "open" in message:
            number = message["open"]
            task = asyncio.create_task(self._lend(number, message["tree"], message["path"]))
            self._tasks[number] = task
        elif "want" in message:
            cached = self._lent.get(message["lease"])
            if cached is not None:
                self._trees.blob_table.want(cached, message["want"])
        elif "urls" in message:
            # The daemon waits for the end of this before it asks again.
            self._sending_urls = asyncio.create_task(self._send_urls())
        elif (lent := self._tasks.pop(message["close"], None)) is not None:
            lent.cancel()

    async def close(self) -> None:
        tasks = [*self._tasks.values(), *([self._sending_urls] if self._sending_urls else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _lend(self, number: int, digest: str, path: str) -> None:
        """Lends one file until it is given back, and sends which chunks of it have come."""
        try:
            cached = await self._find(digest, path)
            # The kernel reads a file on disk in larger pages than it gives to memory.
            async with self._trees.blob_table.lend(cached, disk_first=True) as fd:
                self._lent[number] = cached
                await self._send_chunks(number, cached, fd)
                await asyncio.get_running_loop().create_future()
        except CacheError as error:
            await self._link.send({"lease": number, "error": str(error), "code": error.code})
        except OSError as error:  # there are no descriptors, or the daemon is gone
            with contextlib.suppress(OSError):
                await self._link.send({"lease": number, "error": str(error), "code": "os_error"})
        finally:
            self._lent.pop(number, None)

    async def _find(self, digest: str, path: str) -> CachedBlob:
        if digest:
            return await self._trees.borrow(digest, path)
        if path not in self._shown:
            raise VersionChanged(f"version {path} is no longer what was pulled; open it again")
        return self._pulls.bring(self._shown[path])

    async def _send_urls(self) -> None:
        known, self._shown = self._shown, self._located()
        new = [one for key, one in self._shown.items() if key not in known]
        urls = {one.url for one in self._shown.values()}
        gone = [one.url for one in known.values() if one.url not in urls]
        for at in range(0, max(1, len(new), len(gone)), _URLS_PER_PACKET):
            part = slice(at, at + _URLS_PER_PACKET)
            files = [[one.url, one.size_bytes, one.key] for one in new[part]]
            last = part.stop >= max(len(new), len(gone))
            await self._link.send({"files": files, "gone": gone[part], "last": last})

    def _located(self) -> dict[str, Version]:
        return {one.key: one for place in self._pulls.locations() for one in place.versions}

    async def _send_chunks(self, number: int, cached: CachedBlob, fd: int) -> None:
        sent, complete = len(cached.done), cached.complete
        first, *more = _packets([] if complete else cached.done)
        size_bytes = cached.content.size_bytes
        opening = {"lease": number, "size": size_bytes, "complete": complete, "done": first}
        await self._link.send(opening, fd)
        while not complete:
            for done in more:
                await self._link.send({"lease": number, "done": done})
            complete = sent == len(cached.content.chunks)
            if not complete:
                await cached.until_more(sent)
            more, sent = _packets(cached.done[sent:]), len(cached.done)


def _packets(chunks: list[int]) -> list[list[int]]:
    """Cuts the chunks into packets: at least one, which may be empty."""
    starts: Iterable[int] = range(0, max(1, len(chunks)), _CHUNKS_PER_PACKET)
    return [chunks[at : at + _CHUNKS_PER_PACKET] for at in starts]
