"""The gateway as a process: its start, the source of its routes, its end by a signal."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import uvloop

from hotplate.machine import descriptors
from hotplate.machine.address import Address
from hotplate.serving.gateway.admin.endpoints import ANY, Admin
from hotplate.serving.gateway.all_routes import Gateway
from hotplate.serving.gateway.compiled import is_used
from hotplate.serving.gateway.fleet.discovery import RENDEZVOUS, rendezvous, shared_secret
from hotplate.serving.gateway.fleet.membership import Fleet, process_of
from hotplate.serving.gateway.fleet.network import NetworkFleet
from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.protocol.api_server import ApiServer
from hotplate.serving.gateway.protocol.control_planes import ControlPlanes
from hotplate.serving.gateway.protocol.routes import Route
from hotplate.serving.gateway.sources.control_plane_link import ControlPlaneLink
from hotplate.serving.gateway.sources.file_watch import RoutesWatch, keys_of
from hotplate.serving.gateway.sources.last_table import TableFile
from hotplate.serving.gateway.sources.pod_finder import PodFinder
from hotplate.serving.gateway.sources.report_schedule import ReportSchedule
from hotplate.serving.gateway.sources.routes_file import read
from hotplate.serving.gateway.tasks.control_plane_client import ControlPlaneClient
from hotplate.serving.gateway.tasks.deliveries import Deliveries
from hotplate.serving.gateway.tasks.scheduler import TaskScheduler
from hotplate.serving.gateway.telemetry.access_log import AccessLog

log = logging.getLogger(__name__)

UNCOLLECTED = 20_000
"""Objects after which Python searches for cycles. A request leaves none, a connection a few (its
parser refers to its reader); the usual 700 would cost every request."""


@dataclass(frozen=True)
class PeerSettings:
    """How gateways of several machines meet."""

    listen: Address
    """Where this one is reached by the others."""
    names: tuple[Address, ...]
    """The names all of whose addresses are gateways, and their ports."""


@dataclass(frozen=True)
class Linked:
    """The routes come from a control plane."""

    control_plane: str
    """Its address, http(s)://host:port; of several, of which one acts, with commas between."""
    token: str = field(repr=False)
    """The bearer token of this gateway there."""
    state_dir: Path
    """Where the last route table is kept."""
    listens: tuple[Route, ...] = ()
    """Where callers arrive, for all deployments; empty = each has an address of its own, which the
    table names."""
    cluster: ApiServer | None = None
    """Where the pods of routes are found that name them; None = this is no pod."""
    peers: PeerSettings | None = None
    """How it meets gateways of other machines; None = it meets those of its own."""


@dataclass(frozen=True)
class GatewaySettings:
    """The settings of one gateway process."""

    source: Linked | Path
    """Where its routes come from: a control plane, or a file of routes."""
    admin: str = ""
    """host:port of the operators' listener; empty = as the file says, else any port."""
    replace: bool = False
    """Whether the oldest gateway of the same file retires once this one serves. A gateway with a
    control plane always replaces the one with its state folder."""
    grace_s: float = 30.0
    """How long running requests may take to finish after SIGTERM."""
    limits: Limits = field(default_factory=Limits)
    """Bounds on callers and on connections."""
    token: str = field(default="", repr=False)
    """The bearer token of operators' requests; empty = the cluster's token, or, without a control
    plane, none is needed."""
    metrics_token: str | None = field(default="", repr=False)
    """A second token, for `/metrics`; None = `/metrics` needs none."""
    access_log: Path | None = None
    """The file of the access log; None = there is no log."""


class Source(Protocol):
    """Where routes come from."""

    async def load(self) -> str:
        """Prepares the start; returns the operator's address, if the source names one."""

    async def start(self) -> None:
        """Applies the routes that are known already."""

    async def run(self) -> None:
        """Keeps the routes up to date until cancelled."""

    def describe(self) -> dict[str, Any]:
        """What an operator should know about the source."""


async def serve(settings: GatewaySettings, ready: Callable[[int], None]) -> None:
    """Serves until SIGTERM or SIGINT, then ends in order; SIGUSR2 starts another in its place.

    `ready` is called once with the admin port, when the routes that are known are being listened
    on. Raises OSError when the admin port cannot be bound, `BadRoutesFile` when the file of routes
    cannot be served.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    reports = ReportSchedule()
    with _meeting(settings.source) as fleet:
        gateway = Gateway(
            shared(settings.limits, descriptors.allow_many()),
            fleet,
            None if settings.access_log is None else AccessLog(settings.access_log),
            reports.changed,
        )

        async def listen(named: str) -> int:
            if settings.admin:
                replaced = partial(_replaced, settings, fleet)
                return await admin.listen(settings.admin, in_turn=replaced)
            return await admin.listen(named or ANY, in_turn=partial(_shares_machine, fleet))

        source = _source(settings.source, gateway, reports, listen)
        linked = settings.source.token if isinstance(settings.source, Linked) else ""
        admin = Admin(gateway, source.describe, settings.token or linked, settings.metrics_token)
        await gateway.join(admin.protocol)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    grace_s = 0.0
    work: list[asyncio.Task[object]] = []
    try:
        port = await listen(await source.load())
        await source.start()
        work.append(asyncio.create_task(source.run()))
        if gateway.tasks is not None:
            work.append(asyncio.create_task(gateway.tasks.run()))
        ready(port)
        if isinstance(fleet, Fleet):
            loop.add_signal_handler(signal.SIGUSR2, _start_another, settings)
        else:  # its addresses are not free for another one
            signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        for gateway_id in _replaced(settings, fleet):
            log.info("gateway %s is replaced by this one", gateway_id)
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_of(gateway_id), signal.SIGTERM)
        work.append(asyncio.create_task(stop.wait()))
        await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        grace_s = settings.grace_s
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
            loop.remove_signal_handler(number)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # it ends already
        await gateway.close(grace_s)
        for task in work:
            task.cancel()
        for task in work:  # before what they use is closed
            with contextlib.suppress(asyncio.CancelledError):
                await task  # they only end by themselves by a bug, which is raised here
        if gateway.tasks is not None:
            await gateway.tasks.close()
        await admin.close()


@contextlib.contextmanager
def _meeting(source: Linked | Path) -> Iterator[Fleet | NetworkFleet]:
    """The fleet; on one machine gateways join it one after the other."""
    if isinstance(source, Linked) and source.peers is not None:
        folder, peers = source.state_dir / "peers", source.peers
        folder.mkdir(parents=True, exist_ok=True)
        now = datetime.now(UTC).timestamp()
        yield NetworkFleet(folder, now, source.token, peers.listen, peers.names)
        return
    with rendezvous(_keys(source), _otherwise(source)) as folder:
        started_at = asyncio.get_running_loop().time()
        yield Fleet(folder, started_at, _seat(source), _secret(source, folder))


def _keys(source: Linked | Path) -> Sequence[str]:
    """The keys by which gateways find each other that serve the same routes."""
    if isinstance(source, Path):
        return keys_of(source, read(source).routes)
    return [f"token {source.token}"]


def _otherwise(source: Linked | Path) -> Path | None:
    """Where gateways meet if this user has no home."""
    return None if isinstance(source, Path) else source.state_dir / RENDEZVOUS


def _secret(source: Linked | Path, folder: Path) -> str:
    """The secret that gateways of the fleet share."""
    return shared_secret(folder) if isinstance(source, Path) else source.token


def _seat(source: Linked | Path) -> str:
    return "" if isinstance(source, Path) else str(source.state_dir.resolve())


def _shares_machine(fleet: Fleet | NetworkFleet) -> bool:
    """Whether another gateway of this machine may have an address that is taken."""
    return isinstance(fleet, Fleet) and bool(fleet.look())


def _replaced(settings: GatewaySettings, fleet: Fleet | NetworkFleet) -> Sequence[str]:
    """The gateways that retire for this one."""
    if isinstance(fleet, NetworkFleet):
        return ()
    fleet.look()
    return fleet.staying[:1] if settings.replace else fleet.in_seat


def _start_another(settings: GatewaySettings) -> None:
    """Starts this command again, with the program as it is now; the new gateway has this one
    retire."""
    command = list(sys.orig_argv)
    if isinstance(settings.source, Path) and not settings.replace:
        command.append("--replace")
    log.info("another gateway is started in place of this one: %s", " ".join(command))
    subprocess.Popen(command, executable=sys.executable, start_new_session=True)


def _source(
    source: Linked | Path,
    gateway: Gateway,
    reports: ReportSchedule,
    move_admin: Callable[[str], Awaitable[object]],
) -> Source:
    if isinstance(source, Path):
        return RoutesWatch(gateway, source, move_admin)
    planes = ControlPlanes(source.control_plane)
    client = ControlPlaneClient(planes=planes, token=source.token)
    deliveries = Deliveries(client, source.state_dir / "tasks")
    gateway.tasks = TaskScheduler(gateway.server, client, deliveries)
    return ControlPlaneLink(
        gateway,
        TableFile(source.state_dir),
        reports,
        planes=planes,
        token=source.token,
        listens=source.listens,
        finder=None if source.cluster is None else PodFinder(source.cluster),
    )


def shared(limits: Limits, descriptors_most: int) -> Limits:
    """Limits the connections of one route to three fifths of the process's descriptors; the rest is
    for other routes and for connections to replicas."""
    return replace(limits, connections=min(limits.connections, descriptors_most * 3 // 5))


def run(settings: GatewaySettings, ready: Callable[[int], None]) -> None:
    """`serve` on an event loop of its own."""
    gc.freeze()
    gc.set_threshold(UNCOLLECTED)
    log.info("the request path is %s", "compiled" if is_used() else "plain Python, not compiled")
    uvloop.run(serve(settings, ready))
