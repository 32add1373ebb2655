"""Agents over a blob store of two models, whose origin obeys the test."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotplate.cache.agent import AgentSettings, run
from hotplate.cache.client import AgentClient
from hotplate.cache.manifest import CHUNK_BYTES, Manifest
from hotplate.cache.origins.blob_source import FsspecOrigin
from tests.support.cache.fakes import (
    AgentProcess,
    OriginServer,
    PacedOrigin,
    blob_of,
    publish,
    random_bytes,
)

WEIGHTS = random_bytes(2 * CHUNK_BYTES + 5, 6)
SHARED = random_bytes(CHUNK_BYTES + 5, 7)
BLOB = blob_of(WEIGHTS)


@dataclass
class AgentBench:
    """Two models that share a file, at an origin that obeys the test."""

    origin: PacedOrigin
    server: OriginServer
    folder: Path
    first: Manifest
    second: Manifest

    def agent(self, **options: Any) -> AgentProcess:
        return AgentProcess(self.folder / "data", self.server.url, **options)

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[AgentClient]:
        """A client of an agent in this process, where a process of its own adds nothing."""
        settings = AgentSettings(self.folder / "data", self.server.url, **options)
        async with run(settings) as url, client_at(url, settings.token) as client:
            yield client


@contextlib.contextmanager
def agent_bench(root: Path) -> Iterator[AgentBench]:
    store = root / "store"
    config = {"config.json": b"{}", "empty": None, "sub/run.sh": b"#!/bin/sh\n"}
    first = publish(store, {**config, "model.safetensors": WEIGHTS, "vocab.bin": SHARED})
    second = publish(store, {"other.safetensors": WEIGHTS, "tokens.bin": SHARED})
    origin = PacedOrigin(FsspecOrigin(f"file://{store}"))
    server = OriginServer(store, origin)
    yield AgentBench(origin, server, root, first, second)
    origin.release()
    server.close()


@asynccontextmanager
async def client_at(url: str, token: str = "", **options: Any) -> AsyncIterator[AgentClient]:
    client = AgentClient(url, token, **options)
    try:
        yield client
    finally:
        await client.close()
