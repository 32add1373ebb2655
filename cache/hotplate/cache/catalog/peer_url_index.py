"""What other nodes' ledgers say of a URL: its files when the origin is down, and their digests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

from hotplate.cache.catalog.url_index import location_of
from hotplate.cache.client import AgentClient
from hotplate.cache.errors import CacheError
from hotplate.cache.fetching.traffic import Traffic
from hotplate.cache.manifest import Blob, chunk_digest, count_chunks
from hotplate.cache.origins.blob_source import ByteSource
from hotplate.cache.origins.hub_url import HubUrl, is_commit
from hotplate.cache.origins.locations import Location, Version

_ANSWER_S = 2.0
"""A node that takes longer is asked nothing: a pull waits for this."""


class PeerUrlIndex:
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
                found = _read(await client.location(url))
            return found if is_place(found[0], url) else None
        except (CacheError, TimeoutError, KeyError, TypeError, ValueError):
            return None  # it is not there, has not seen the URL, or speaks another version of this
        finally:
            await client.close()


def is_place(location: Location, url: str) -> bool:
    """Whether its files can be those of the URL. A peer that lies would have this node read files
    of its own machine or network, and give them on."""
    right = location.url == url.rstrip("/")
    return right and all(_lies_at(version.url, url) for version in location.versions)


def _lies_at(file: str, url: str) -> bool:
    if url.startswith("hf://"):
        model, asked = HubUrl.of(file), HubUrl.of(url)
        same = (model.model_id, model.endpoint) == (asked.model_id, asked.endpoint)
        return file.startswith("hf://") and same and is_commit(model.revision)
    file, url = file.removeprefix("file://"), url.removeprefix("file://").rstrip("/")
    if {".", ".."} & set(file.split("/")):
        return False
    one, other = urlsplit(file), urlsplit(url)
    web = one.scheme in ("http", "https") and (one.scheme, one.netloc) == other[:2]
    return web or file == url or file.startswith(f"{url}/")


def agreed(claims: Sequence[Blob], origin: ByteSource, read: Traffic) -> Blob:
    """What of one version all claim; where they contradict each other, what the origin has.

    Only chunks that are in dispute are read, and who was wrong once is not believed again. `read`
    counts them. Blocks; raises CacheError when the origin does not give them.
    """
    while (index := _disputed(claims)) is not None:
        offset, length = claims[0].span(index)
        data = bytearray(length)
        origin.read_into(offset, memoryview(data))
        read.add(origin_bytes=length)
        digest = chunk_digest(data)
        right = [one for one in claims if one.chunks[index] == digest]
        claims = right or [_corrected(one, index, digest) for one in claims]
    return claims[0]


def _disputed(claims: Sequence[Blob]) -> int | None:
    """A chunk that not all say the same digest of."""
    said = zip(*(one.chunks for one in claims), strict=True)
    return next((index for index, digests in enumerate(said) if len(set(digests)) > 1), None)


def _corrected(blob: Blob, index: int, digest: str) -> Blob:
    return Blob(blob.size_bytes, (*blob.chunks[:index], digest, *blob.chunks[index + 1 :]))


def _read(data: dict[str, Any]) -> tuple[Location, dict[Version, Blob]]:
    location = location_of(data)
    known = zip(location.versions, data["chunks"], strict=True)
    blobs = {one: _blob(one, chunks) for one, chunks in known if chunks is not None}
    return location, blobs


def _blob(version: Version, chunks: Sequence[str]) -> Blob:
    if len(chunks) != count_chunks(version.size_bytes):
        raise ValueError(f"{len(chunks)} digests for {version.size_bytes} bytes")
    return Blob(version.size_bytes, tuple(map(str, chunks)))
