"""What other nodes' ledgers have of a URL: its files when the origin is down, and their digests."""

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

_RESPONSE_S = 2.0
"""A node that takes longer is left out, since a pull waits for the responses."""


class PeerUrlIndex:
    """Asks the cluster's other agents, which are trusted as far as they have its token."""

    def __init__(self, addresses: Callable[[], Iterable[str]], token: str) -> None:
        """`addresses` gives the `HOST:PORT` of agents that may be there."""
        self._addresses = addresses
        self._token = token

    async def ask(self, url: str) -> list[tuple[Location, dict[Version, Blob]]]:
        """The report of each peer that has seen the URL."""
        answers = await asyncio.gather(*(self._ask(one, url) for one in set(self._addresses())))
        return [one for one in answers if one is not None]

    async def _ask(self, address: str, url: str) -> tuple[Location, dict[Version, Blob]] | None:
        client = AgentClient(f"http://{address}", self._token, patience_s=0)
        try:
            async with asyncio.timeout(_RESPONSE_S):
                found = _read(await client.location(url))
            return found if is_place(found[0], url) else None
        except (CacheError, TimeoutError, KeyError, TypeError, ValueError):
            return None  # it is gone, has not seen the URL, or has another version of this protocol
        finally:
            await client.close()


def is_place(location: Location, url: str) -> bool:
    """Whether its files can be those of the URL: a lying peer could otherwise make this node read
    and pass on files of its own machine or network."""
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


def agreed(reports: Sequence[Blob], origin: ByteSource, read: Traffic) -> Blob:
    """The digests of one version that all reports agree on; where they differ, the origin's.

    Only disputed chunks are read, and a report that was wrong once is left out. `read` counts the
    bytes. Blocks; raises CacheError when the origin does not give them.
    """
    while (index := _disputed(reports)) is not None:
        offset, length = reports[0].span(index)
        data = bytearray(length)
        origin.read_into(offset, memoryview(data))
        read.add(origin_bytes=length)
        digest = chunk_digest(data)
        right = [one for one in reports if one.chunks[index] == digest]
        reports = right or [_corrected(one, index, digest) for one in reports]
    return reports[0]


def _disputed(reports: Sequence[Blob]) -> int | None:
    """The first chunk of which the reports have different digests."""
    by_chunk = zip(*(one.chunks for one in reports), strict=True)
    return next((index for index, digests in enumerate(by_chunk) if len(set(digests)) > 1), None)


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
