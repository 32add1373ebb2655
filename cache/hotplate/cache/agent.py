"""The agent: one process per node that brings files here and lends them to replicas."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from hotplate.cache import descriptors
from hotplate.cache.arena import Arena, memory_limit_bytes
from hotplate.cache.chunks import STALL_S
from hotplate.cache.control import application
from hotplate.cache.disk import DiskTier
from hotplate.cache.errors import CacheError
from hotplate.cache.fetching import Fetcher
from hotplate.cache.holdings import Holdings
from hotplate.cache.lending import Lending
from hotplate.cache.metrics import Metrics
from hotplate.cache.node import Node
from hotplate.cache.origin import FsspecOrigin


@dataclass(frozen=True)
class AgentSettings:
    """What an agent needs to know."""

    data_dir: Path
    """Folder of the disk tier, the trees and the socket: on one file system, the agent's own."""
    origin_url: str
    """fsspec URL of the blob store: `file:///…`, `s3://…`, `gs://…`, `http://…`."""
    host: str = "127.0.0.1"
    """Address of the control interface. Beyond this machine it needs a token."""
    port: int = 0
    """Port of the control interface; 0 takes any free one, which `ready` is told."""
    token: str = field(default="", repr=False)
    """Bearer token of the control interface; empty lets everybody in."""
    arena_limit_bytes: int = field(default_factory=memory_limit_bytes)
    """Memory for files, in bytes; a quarter of what there is, since replicas need the rest."""
    disk_reserve_bytes: int = 0
    """Bytes of the disk that the agent leaves free; 0 = 5 % of it, at most 1 GiB."""
    fetch_threads: int = 4
    """Chunks on their way at once. Object stores give 50-100 MB/s per connection."""
    stall_s: float = STALL_S
    """Seconds without a verified chunk after which a file fails."""
    flush_s: float = 60.0
    """Seconds that a stopping agent takes to write complete files to disk."""

    def __post_init__(self) -> None:
        if self.fetch_threads < 1:
            raise ValueError(f"fetch_threads: {self.fetch_threads} is below 1")
        if self.arena_limit_bytes < 0:
            raise ValueError(f"arena_limit_bytes: {self.arena_limit_bytes} is below 0")
        if self.disk_reserve_bytes < 0:
            raise ValueError(f"disk_reserve_bytes: {self.disk_reserve_bytes} is below 0")


async def serve(settings: AgentSettings, ready: Callable[[str], None]) -> None:
    """Runs until SIGTERM, SIGINT or cancellation; `ready` is called with the interface's URL.

    Complete files are on disk when it returns. Raises CacheError when another agent has the
    data folder, OSError when the port is taken.
    """
    stopped = asyncio.Event()
    async with run(settings) as url:
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, stopped.set)
        try:
            ready(url)
            await stopped.wait()
        finally:
            for signum in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(signum)


@contextlib.asynccontextmanager
async def run(settings: AgentSettings) -> AsyncIterator[str]:
    """An agent inside this process for the time of the block; gives the interface's URL."""
    data = settings.data_dir.resolve()
    data.mkdir(parents=True, exist_ok=True)
    with _sole_agent(data):
        descriptors.allow_many()  # one per blob in memory, and one per lease
        metrics = Metrics()
        origin = FsspecOrigin(settings.origin_url)
        arena = Arena(settings.arena_limit_bytes)
        disk = DiskTier(data / "disk", settings.disk_reserve_bytes)
        clock = asyncio.get_running_loop().time
        fetcher = Fetcher(settings.fetch_threads, clock, metrics)
        holdings = Holdings(arena, disk, fetcher, settings.stall_s)
        node = Node(data, origin, disk, holdings)
        node.sweep()
        metrics.arena_bytes.set_function(lambda: arena.used_bytes)
        metrics.disk_bytes.set_function(lambda: disk.used_bytes)
        metrics.leases.set_function(lambda: sum(one.leases for one in holdings))
        lending = Lending(node, data)
        runner = web.AppRunner(
            application(node, metrics, settings.token), access_log=None, shutdown_timeout=1
        )
        try:
            await runner.setup()
            site = web.TCPSite(runner, settings.host, settings.port)
            await site.start()
            host, port = runner.addresses[0][:2]
            yield f"http://{host}:{port}"
        finally:
            await lending.close()
            await node.close(settings.flush_s)
            await runner.cleanup()


@contextlib.contextmanager
def _sole_agent(data: Path) -> Iterator[None]:
    """Holds the folder's lock. Raises CacheError when another agent does."""
    fd = os.open(data / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CacheError(
                f"another agent uses {data}; stop it or choose another data folder"
            ) from None
        yield
    finally:
        os.close(fd)
