"""What other nodes' ledgers say of a URL: its files when the origin is down, and their digests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hotplate.cache.client import AgentClient
from hotplate.cache.errors import CacheError
from hotplate.cache.ledger import location_of
from hotplate.cache.locations import Location, Version
from hotplate.cache.manifest import Blob, count_chunks

_ANSWER_S = 2.0
"""A node that takes longer is asked nothing: a pull waits for this."""


class PeerLedgers:
    """Asks the cluster's other agents, whose word is taken: they have its token."""

    def __init__(self, addresses: Callable[[], Iterable[str]], token: str) -> None:
        """`addresses` are the `HOST:PORT` of agents that may be there."""
        self._addresses = addresses
        self._token = token

    async def ask(self, url: str) -> list[tuple[Location, dict[Version, Blob]]]:
        """What each peer that has seen the URL knows of it."""
        answers = await asyncio.gather(*(self._ask(one, url) for one in set(self._addresses())))
        return [one for one in answers if one is not None]

    async def _ask(self, address: str, url: str) -> tuple[Location, dict[Version, Blob]] | None:
        client = AgentClient(f"http://{address}", self._token, patience_s=0)
        try:
            async with asyncio.timeout(_ANSWER_S):
                return _read(await client.location(url))
        except (CacheError, TimeoutError, KeyError, TypeError, ValueError):
            return None  # it is not there, has not seen the URL, or speaks another version of this
        finally:
            await client.close()


def _read(data: dict[str, Any]) -> tuple[Location, dict[Version, Blob]]:
    location = location_of(data)
    known = zip(location.versions, data["chunks"], strict=True)
    blobs = {one: _blob(one, chunks) for one, chunks in known if chunks is not None}
    return location, blobs


def _blob(version: Version, chunks: Sequence[str]) -> Blob:
    if len(chunks) != count_chunks(version.size_bytes):
        raise ValueError(f"{len(chunks)} digests for {version.size_bytes} bytes")
    return Blob(version.size_bytes, tuple(map(str, chunks)))
