"""All routes of one gateway: follows route tables, reports demand, and ends in order."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from hotplate.machine.access.metrics_check import MetricsReaders
from hotplate.serving.gateway.admission.accepted_tokens import AcceptedTokens
from hotplate.serving.gateway.admission.version_routes import with_versions
from hotplate.serving.gateway.callers.route_listener import Peers
from hotplate.serving.gateway.fleet.backup_keeper import BackupKeeper
from hotplate.serving.gateway.fleet.connection_backup import ConnectionBackup
from hotplate.serving.gateway.fleet.handover import Inbox, hand_over
from hotplate.serving.gateway.fleet.membership import Fleet
from hotplate.serving.gateway.fleet.network import GREETING, NetworkFleet
from hotplate.serving.gateway.internal_listener import InternalListener
from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.owner.ownership import Ownership
from hotplate.serving.gateway.owner.peer_listener import PeerListener
from hotplate.serving.gateway.protocol.route_counts import RouteCounts
from hotplate.serving.gateway.protocol.routes import (
    INTERNAL,
    Change,
    DemandReport,
    Route,
    RouteTable,
)
from hotplate.serving.gateway.route_server import RouteServer
from hotplate.serving.gateway.shared_listener import SharedListener
from hotplate.serving.gateway.tasks.scheduler import TaskScheduler
from hotplate.serving.gateway.telemetry.access_log import AccessLog

LOOK_S = 0.1
"""How often a gateway checks the other gateways."""

ALONE_LOOK_S = 0.25
"""The same without other gateways: most gateways are alone, and the check is most of what an idle
one does. A gateway that has just joined may own a deployment next: until it is noticed, nothing is
backed up there."""

IDLE_S = 1.0
"""A retiring gateway closes callers' connections that are idle for this long."""

PARTING_S = 5.0
"""A gateway that others reach over the network accepts callers for this long after it has said that
it retires: that is how long it takes until nobody is led to it any longer."""

log = logging.getLogger(__name__)


def _nobody_listens(name: str, change: Change) -> None:
    """The listener of a gateway whose demand is not reported."""


class Gateway:
    """The routes in force and those that are still ending."""

    def __init__(
        self,
        limits: Limits | None = None,
        fleet: Fleet | NetworkFleet | None = None,
        access_log: AccessLog | None = None,
        on_change: Callable[[str, Change], None] = _nobody_listens,
    ) -> None:
        """Without a `fleet` this gateway is the only one, and owns all deployments. `on_change` is
        called with a route's name when its demand has changed."""
        self.limits = limits or Limits()
        self.fleet = fleet
        self._access_log = access_log
        self.version = 0
        """The version of the table in force; 0 = there is none yet."""
        self._on_change = on_change
        self._touched: set[str] = set()
        """Routes that may have counted something since it was told."""
        self.tasks: TaskScheduler | None = None
        """The tasks that the control plane keeps; None = all tasks are with their replicas."""
        self.tokens = AcceptedTokens()
        self.readers = MetricsReaders()
        """Who may read the metrics, as the last table had it."""
        self._servers: dict[str, RouteServer] = {}
        self._shared: dict[str, SharedListener] = {}
        """Where routes with hosts are reached, by name, also those that no table has any longer."""
        self._ownerships: dict[str, Ownership] = {}
        """The ownership of each deployment, where there may be several gateways."""
        self._peer_listener: PeerListener | None = None
        self._inbox: Inbox | None = None
        self.keeper: BackupKeeper | None = None
        """Connections that other gateways have backed up here; None until it has joined them."""
        self._looking: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def servers(self) -> list[RouteServer]:
        """All routes, in the table's order."""
        return list(self._servers.values())

    @property
    def _listening(self) -> list[RouteServer]:
        """All that callers may be connected to."""
        return [*self.servers, *self._shared.values()]

    @property
    def ready(self) -> bool:
        """Whether callers may be led here."""
        return self.version > 0 and not self._stopping

    @property
    def _sharing(self) -> Peers | None:
        """The gateways that may listen at the same addresses; None = none may."""
        return self.fleet.look if isinstance(self.fleet, Fleet) else None

    def server(self, name: str) -> RouteServer | None:
        return self._servers.get(name)

    def owner(self, name: str) -> str:
        """The gateway that has the deployment's queue and slots; empty = none at this moment."""
        ownership = self._ownerships.get(name)
        return ownership.owner if ownership is not None else ""

    async def join(self, operator: Callable[[], asyncio.Protocol]) -> None:
        """Joins the gateways of the fleet; they may send it operators' requests, which `operator`
        serves. Raises OSError."""
        fleet = self.fleet
        assert fleet is not None
        fleet.folder.mkdir(mode=0o700, exist_ok=True)
        others = {"": operator}
        self._peer_listener = PeerListener(fleet.proof, self.server, others)
        if isinstance(fleet, NetworkFleet):
            others[GREETING] = fleet.accepted
            await self._peer_listener.open_to_network(fleet.listen)
            await fleet.join()
        else:
            await self._peer_listener.open(fleet.socket)
            inbox_path = fleet.handover_socket_of(fleet.id)
            self._inbox = Inbox(inbox_path, fleet.proof, self._take_socket)
            self._inbox.open()
            self.keeper = BackupKeeper(fleet)
            self.keeper.open()
            fleet.join()
        self._looking = asyncio.create_task(self._follow_fleet())

    async def apply(self, table: RouteTable) -> None:
        """Applies a whole table: new routes listen, removed ones end, the others go on. A gateway
        that stops applies no more tables."""
        if self._stopping:
            return
        self.tokens.install(table.tokens)
        self.readers.install(table.readers)
        routes = with_versions(table.routes)
        named = {route.name for route in routes}
        removed = [name for name in self._servers if name not in named]
        self._stop([name for name in removed if self._servers[name].main is None])
        self._forget_ended()
        if self.fleet is not None:
            self.fleet.serve(named)
            self.fleet.look()
        for route in sorted(routes, key=lambda route: bool(route.versions)):
            await self._serve(route)  # a version before the public route that gives requests to it
        # An address may have become free only by a route that comes later in the table.
        for route in routes:
            if self._servers[route.name].error:
                await self._serve(route)
        await self._share(table.shared, table.routes)
        self._stop(removed)  # versions, now that nothing more is given to them
        self._forget_ended()
        self.version = table.version

    def report(self) -> DemandReport:
        """The demand of every route, including routes that are ending."""
        self._forget_ended()
        tasks = {} if self.tasks is None else self.tasks.running()
        return DemandReport(
            version=self.version,
            routes={
                name: replace(
                    server.demand(),
                    tasks=tasks.get(name, {}),
                    out=server.queue.ejection_reasons(),
                    refusals=dict(server.counters.refusals),
                )
                for name, server in self._servers.items()
            },
        )

    def take_counts(self, now: float) -> dict[str, RouteCounts]:
        """What each route has counted since the last call, if anything. To be called with each
        `report`, after which a route says again that it has changed: the others are not asked."""
        touched, self._touched = self._touched, set()
        taken: dict[str, RouteCounts] = {}
        for name in touched:
            server = self._servers.get(name)
            counts = None if server is None else server.take_counts(now)
            if counts is not None:
                taken[name] = counts
                self._touched.add(name)  # it may be busy still
        return taken

    async def close(self, grace_s: float) -> None:
        """Lets requests that run finish for `grace_s`, and accepts no more. Waiting requests, and
        callers' connections, go over to another gateway if there is one; otherwise waiting requests
        are refused."""
        self._stopping = True
        if self.fleet is not None and grace_s:
            await self._retire(self.fleet)
        for server in self._listening:
            if not server.draining:
                server.stop("This gateway stops; try again.")
        try:
            async with asyncio.timeout(grace_s):
                await self._ended()
        except TimeoutError:
            for server in self._listening:
                server.abandon()
        if self._looking is not None:
            self._looking.cancel()
        for ownership in self._ownerships.values():
            ownership.close()
        if self._peer_listener is not None:
            self._peer_listener.close()
        if self._inbox is not None:
            self._inbox.close()
        if self.keeper is not None:
            self.keeper.close()
        if self.fleet is not None:
            self.fleet.leave()
        if self._access_log is not None:
            self._access_log.close()

    def _stop(self, names: Iterable[str]) -> None:
        for name in names:
            server = self._servers.get(name)
            if server is not None and not server.closing:
                server.stop(f"{name} is no longer served.")
                if name in self._ownerships:
                    self._ownerships[name].end()

    async def _retire(self, fleet: Fleet | NetworkFleet) -> None:
        """Hands over to other gateways what they serve too."""
        fleet.look()
        if not fleet.staying:
            if isinstance(fleet, NetworkFleet):
                log.info("this gateway retires, and there is no other")
                await self._part_with_callers(list(self._shared.values()))
            return
        fleet.retire()
        inherited = [server for server in self.servers if fleet.rightful_owner(server.route.name)]
        inherited.extend(self._shared.values())
        if isinstance(fleet, NetworkFleet):
            log.info("this gateway retires, and others take over")
            await self._part_with_callers(inherited)
        else:
            await self._give_sockets(fleet, inherited)
        for server in inherited:
            server.callers.retire(IDLE_S)
            if server.route.name not in self._shared:
                self._ownerships[server.route.name].look()

    async def _give_sockets(self, fleet: Fleet, servers: Sequence[RouteServer]) -> None:
        """Has another gateway of this machine accept those who come."""
        listening = [(s.route.name, fd) for s in servers for fd in s.callers.listener.descriptors]
        successor = fleet.staying[-1]
        log.info("gateway %s takes over: %d listening sockets", successor, len(listening))
        await asyncio.to_thread(
            hand_over, fleet.handover_socket_of(successor), fleet.proof, listening
        )

    async def _part_with_callers(self, servers: Sequence[RouteServer]) -> None:
        """Accepts those who have not heard yet that it retires, and has each of them come
        elsewhere the next time."""
        for server in servers:
            server.callers.parting = True
            if server.route.name not in self._shared:
                self._ownerships[server.route.name].look()
        await asyncio.sleep(PARTING_S)
        for server in servers:
            server.callers.parting = False

    async def _ended(self) -> None:
        """Waits until nothing runs and no caller is connected."""
        ended = asyncio.gather(*(server.ended() for server in self._listening))
        while not ended.done():
            await asyncio.wait([ended], timeout=LOOK_S)
            for server in self._listening:
                if not server.closing:
                    server.callers.retire(IDLE_S)

    async def _take_socket(self, name: str, listening: socket.socket) -> bool:
        server = self._shared.get(name) or self._servers.get(name)
        return server is not None and await server.callers.adopt(listening)

    async def _follow_fleet(self) -> None:
        assert self.fleet is not None
        while True:
            await asyncio.sleep(LOOK_S if self.fleet.peers else ALONE_LOOK_S)
            self.fleet.look()
            for ownership in self._ownerships.values():
                ownership.look()

    async def _serve(self, route: Route) -> None:
        server = self._servers.get(route.name)
        if server is None:
            fleet, changed = self.fleet, partial(self._changed, route.name)
            peers = self._sharing
            backup = None if fleet is None else ConnectionBackup(fleet, route.name)
            server = RouteServer(route, self.limits, changed, peers, self._access_log, backup)
            self._servers[route.name] = server
            if fleet is not None and backup is not None:
                self._ownerships[route.name] = Ownership(fleet, server, backup, self.keeper)
        kept = None if route.internal or self.tasks is None else self.tasks.exchange
        server.task_exchanges = kept
        server.lead({version.id: self._servers[version.route] for version in route.versions})
        server.tokens = self.tokens
        if self.fleet is None:
            server.follow(route)
        else:
            self._ownerships[route.name].follow(route)
        await server.callers.listen()

    async def _share(self, routes: Sequence[Route], table: Sequence[Route]) -> None:
        """Has the table's routes with hosts reached where these say, and nowhere else."""
        named = {route.name: route for route in routes}
        peers = self._sharing
        for name, route in named.items():
            if name not in self._shared:
                kind = InternalListener if name == INTERNAL else SharedListener
                self._shared[name] = kind(route, self.limits, peers, self._access_log)
        servers = [server for server in self.servers if not server.closing]
        for name, listener in self._shared.items():
            listener.tokens = self.tokens
            listener.follow(named.get(name) or Route(name, "", 0))
            listener.share(servers, table)
            await listener.callers.listen()

    def _changed(self, name: str, change: Change) -> None:
        self._touched.add(name)
        self._on_change(name, change)

    def _forget_ended(self) -> None:
        for name in [name for name, server in self._servers.items() if server.is_over]:
            del self._servers[name]
            if name in self._ownerships:
                self._ownerships.pop(name).close()
