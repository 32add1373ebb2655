"""The agent: one process per node that brings files here and lends them to replicas."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import ipaddress
import logging
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from aiohttp import web

from hotplate.cache import own_token
from hotplate.cache.application import application
from hotplate.cache.catalog.manifest_index import ManifestIndex
from hotplate.cache.catalog.peer_url_index import PeerUrlIndex
from hotplate.cache.catalog.pulls import Pulls
from hotplate.cache.catalog.trees import Trees
from hotplate.cache.catalog.url_index import UrlIndex
from hotplate.cache.catalog.view_place import ViewPlace
from hotplate.cache.control import Control
from hotplate.cache.copies.blob_table import BlobTable
from hotplate.cache.errors import CacheError
from hotplate.cache.fetching.contents import Contents
from hotplate.cache.fetching.fetcher import Fetcher
from hotplate.cache.file_view.agent_side import FileView
from hotplate.cache.leases.lending import Lending
from hotplate.cache.metrics import Metrics
from hotplate.cache.origins.blob_source import NoOrigin
from hotplate.cache.origins.schemes import Schemes
from hotplate.cache.peers.change_signal import ChangeSignal
from hotplate.cache.peers.chunk_client import ChunkClient, ClusterPeers
from hotplate.cache.peers.chunk_server import ChunkServer
from hotplate.cache.peers.chunk_source import ChunkSource
from hotplate.cache.peers.gossip import Gossip
from hotplate.cache.peers.members import Members
from hotplate.cache.peers.seeds import Seeds
from hotplate.cache.port import Port, listen
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.store.web_origin import origin_at
from hotplate.cache.swarm.chunks import STALL_S
from hotplate.cache.tiers.arena import Arena, huge_mount, memory_limit_bytes
from hotplate.cache.tiers.disk import DiskTier
from hotplate.cache.volumes.kubelet import Kubelet
from hotplate.cache.volumes.publishing import PodWork, Volumes
from hotplate.cache.volumes.taking.build_results import BuildResults
from hotplate.cache.volumes.taking.foreign_tree import TreeLimits
from hotplate.cache.volumes.taking.gpus import gpu_kinds
from hotplate.cache.volumes.taking.lessons import Lessons
from hotplate.cache.volumes.ticket import key_of
from hotplate.machine import descriptors
from hotplate.machine.access.metrics_check import MetricsCheck, MetricsReaders
from hotplate.machine.access.own_hosts import OwnHosts
from hotplate.machine.access.quiet_connection import QuietConnection
from hotplate.machine.background import BackgroundTasks

log = logging.getLogger(__name__)

SPARE_BYTES = 2 << 30
"""Memory that an agent with a node of its own makes ready, in seconds: most models' first file."""

PEERS_S = 2.0
"""How long a start waits for the list of peers; a DNS server may hang."""


@dataclass(frozen=True)
class AgentSettings:
    """The settings of one agent."""

    data_dir: Path
    """Folder of the disk tier, the trees and the socket: on one file system, the agent's own."""
    origin_url: str = ""
    """fsspec URL of the platform's blob store: `file:///…`, `s3://…`, `gs://…`, `http://…`; empty
    where there is no platform: then only URLs are pulled."""
    host: str = "127.0.0.1"
    """Address of the control interface. Beyond this machine it needs a token."""
    port: int = 0
    """Port of the control interface; 0 takes any free one, which `ready` is called with."""
    hosts: tuple[str, ...] = ()
    """Names by which others call this agent, beside `host` and addresses: see `OwnHosts`."""
    token: str = field(default="", repr=False)
    """The cluster's token; empty: every user of this machine is let in, which suits only a program
    that has the machine to itself (`serve` can make a token)."""
    metrics_token: str | None = field(default="", repr=False)
    """Another token for `/metrics`; None = they need none."""
    peers: tuple[str, ...] = ()
    """`HOST:PORT` of other nodes' agents; they need not run yet."""
    peers_from: str = ""
    """Where to read more of them: a file of `HOST:PORT` lines, or a DNS name, by default with
    this agent's port."""
    arena_limit_bytes: int = field(default_factory=memory_limit_bytes)
    """Memory for files, in bytes; a quarter of what there is, since replicas need the rest."""
    spare_bytes: int = 0
    """Bytes of the arena that are made ready at the start, for the first model."""
    disk_limit_bytes: int = 0
    """Bytes of disk for files; 0 = all but the reserve."""
    disk_reserve_bytes: int = 0
    """Bytes of the disk that the agent leaves free; 0 = 5 % of it, at most 1 GiB."""
    fetch_threads: int = 4
    """Chunks on their way at once. Object stores give 50-100 MB/s per connection."""
    stall_s: float = STALL_S
    """Seconds without a new byte after which a file fails."""
    mount: Path | None = None
    """Folder to mount the file view at, where that is allowed; None = nowhere."""
    kubelet: Kubelet | None = None
    """The node's kubelet, whose pods mount volumes of this agent. Then no file view is made: its
    links would lead out of the volumes."""
    build_limits: TreeLimits = field(default_factory=TreeLimits)
    """How much a build of its pods may leave to be published."""
    flush_s: float = 60.0
    """Seconds that a stopping agent takes to write complete files to disk."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    """Addresses and credentials of a hub and of object stores: `HF_ENDPOINT`, `HF_TOKEN`, …"""

    def __post_init__(self) -> None:
        if self.kubelet is not None and (self.mount is not None or not self.token):
            raise ValueError("kubelet: an agent of a kubelet has no mount, and the cluster's token")
        if self.fetch_threads < 1:
            raise ValueError(f"fetch_threads: {self.fetch_threads} is below 1")
        sizes = ("arena_limit_bytes", "spare_bytes", "disk_limit_bytes", "disk_reserve_bytes")
        for name in sizes:
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: {getattr(self, name)} is below 0")


async def serve(
    settings: AgentSettings, ready: Callable[[str], None], *, guarded: bool = False
) -> None:
    """Runs until SIGTERM, SIGINT or cancellation; `ready` is called with the interface's URL.

    `guarded`: where the settings have no token, makes one that this user's programs find.
    Complete files are on disk when it returns. Raises CacheError when another agent has the data
    folder or the port is taken.
    """
    stopped = asyncio.Event()
    async with run(settings, guarded=guarded) as url:
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
async def run(settings: AgentSettings, *, guarded: bool = False) -> AsyncIterator[str]:
    """Runs an agent inside this process for the time of the block; gives the interface's URL."""
    await _check_reach(settings)
    data = settings.data_dir.resolve()
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    loop = asyncio.get_running_loop()
    # All that is made below is closed in the opposite order, however far the start has come.
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(_sole_agent(data))
        makes_token = guarded and not settings.token
        if makes_token:
            settings = replace(settings, token=own_token.make(data))
        descriptors.allow_many()  # one per blob in memory, and one per lease
        metrics = Metrics()
        clock = loop.time
        schemes = Schemes(clock, settings.environ)
        stack.callback(schemes.close)
        origin = origin_at(settings.origin_url, schemes) if settings.origin_url else NoOrigin()
        disk = DiskTier(
            data / "disk",
            settings.disk_reserve_bytes,
            settings.disk_limit_bytes,
            read_by_root=settings.kubelet is None,
        )
        stack.callback(disk.close)
        _shield(disk)
        listener = listen(settings.host, settings.port)
        stack.callback(listener.close)
        port = listener.getsockname()[1]
        mount = huge_mount(data)
        if mount is not None:
            stack.callback(mount.close)
        arena = Arena(settings.arena_limit_bytes, mount, settings.spare_bytes)
        stack.callback(arena.close)
        ledger = UrlIndex(data / "ledger")
        stack.callback(ledger.close)
        members = Members(secrets.token_hex(8))
        changes = ChangeSignal(loop)
        contents = Contents(
            settings.fetch_threads,
            clock,
            me=members.me,
            awaited=members.awaited,
            announce=changes.set,
        )
        stack.callback(contents.close)
        index, place = ManifestIndex(), ViewPlace()
        blob_table = BlobTable(arena, disk, contents, settings.stall_s, index.blobs)
        trees = Trees(data, origin, blob_table, ledger, index=index, view=place)
        trees.sweep()
        schemes.prepare()
        source = ChunkSource(contents, blob_table, disk, ledger.content, clock)
        gossip = Gossip(members, contents, source, changes, port=port, token=settings.token)
        stack.push_async_callback(gossip.close)
        seeds = Seeds(settings.peers, settings.peers_from, port, gossip.set_seeds)
        client = ChunkClient(settings.token, clock)
        stack.callback(client.close)
        Fetcher(settings.fetch_threads, contents, clock, metrics, ClusterPeers(members, client))
        pulls = Pulls(blob_table, ledger, schemes, PeerUrlIndex(gossip.addresses, settings.token))
        metrics.arena_bytes.set_function(lambda: arena.used_bytes)
        metrics.disk_bytes.set_function(lambda: disk.used_bytes)
        metrics.mended_chunks.set_function(lambda: blob_table.mended_chunks)
        metrics.leases.set_function(lambda: sum(one.leases for one in blob_table))
        view = FileView(trees, pulls, place, settings.mount, data)
        lending = Lending(trees, pulls, data, settings.token)
        volumes = None
        if settings.kubelet is not None:
            volumes = Volumes(trees, lending, data, settings.kubelet, _pod_work(trees, settings))
        control = Control(
            trees=trees,
            pulls=pulls,
            ledger=ledger,
            view=view,
            metrics=metrics,
            metrics_check=MetricsCheck(settings.token, settings.metrics_token, MetricsReaders()),
            lending=lending,
            gossip=gossip,
            volumes=volumes,
        )
        own = OwnHosts(settings.host, settings.hosts)
        app = application(control, settings.token, own)
        runner = web.AppRunner(app, shutdown_timeout=1)
        # Requests that wait for files end with these, so the files go first.
        stack.push_async_callback(runner.cleanup)
        stack.push_async_callback(trees.close, settings.flush_s)
        stack.push_async_callback(pulls.close)
        stack.push_async_callback(lending.close)
        server = ChunkServer(source, settings.token, clock, metrics, own)
        stack.callback(server.close)
        await runner.setup()
        assert runner.server is not None  # set up
        answering = partial(QuietConnection, runner.server, loop=loop)
        stack.push_async_callback(view.close)
        await view.start()
        port_server = Port(listener, server, answering)
        stack.push_async_callback(port_server.close)
        tasks = BackgroundTasks()
        stack.push_async_callback(tasks.cancel)
        tasks.start(seeds.watch())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(seeds.read.wait(), PEERS_S)
        if volumes is not None:
            await stack.enter_async_context(_volumes_given(volumes, settings.token, tasks))
        if makes_token:
            stack.enter_context(own_token.found_at(port_server.url.removeprefix("http://"), data))
        yield port_server.url


@contextlib.asynccontextmanager
async def _volumes_given(
    volumes: Volumes, token: str, tasks: BackgroundTasks
) -> AsyncIterator[None]:
    """Gives kubelet volumes for the time of the block; those that are there stay. Raises
    CacheError."""
    try:
        from hotplate.cache.volumes.plugin import serving
    except ModuleNotFoundError as error:
        raise CacheError(
            f"The Python package {error.name!r} is not installed: run pip install "
            "'hotplate[kubernetes]'."
        ) from error
    await volumes.start()
    try:
        async with serving(volumes, key_of(token)):
            tasks.start(volumes.watch())
            yield
    finally:
        await volumes.close()


def _pod_work(trees: Trees, settings: AgentSettings) -> PodWork:
    assert settings.kubelet is not None

    @cache
    def store() -> BlobStore:
        try:
            return BlobStore(settings.origin_url)
        except (ImportError, ValueError) as exc:
            raise CacheError(f"nothing can be stored at the origin ({exc})") from exc

    results = BuildResults(trees, settings.kubelet, store, settings.build_limits)
    return PodWork(results, Lessons(trees, settings.kubelet, store, gpu_kinds()))


def _shield(disk: DiskTier) -> None:
    try:
        disk.shield()
    except OSError as exc:
        log.warning(
            "replicas of this user could change files that they borrow from %s: no mount can "
            "be made here (%s)",
            disk.root,
            exc.strerror,
        )


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


async def _check_reach(settings: AgentSettings) -> None:
    """Raises CacheError where other machines can reach the address and there is no token."""
    if settings.token:
        return
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
    except OSError as exc:
        raise CacheError(
            f"{settings.host} is no address of this machine ({exc.strerror}); choose another --host"
        ) from exc
    if not all(ipaddress.ip_address(address[0]).is_loopback for *_, address in found):
        raise CacheError(
            f"{settings.host} can be reached from other machines, so the agent needs the cluster's "
            "token: give --token-file, or --host 127.0.0.1"
        )
