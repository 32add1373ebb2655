"""One replica as the gateway sees it: the connections to it, and whether it is ejected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from hotplate.machine.unix_address import unix_path
from hotplate.serving.gateway.fleet.connection_backup import ConnectionBackup
from hotplate.serving.gateway.http1.head_cache import HeadCache
from hotplate.serving.gateway.http1.response_head import ResponseHead
from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.protocol.routes import ReplicaRoute
from hotplate.serving.gateway.replicas.call import Call
from hotplate.serving.gateway.replicas.ejection import Ejection
from hotplate.serving.gateway.replicas.fence import FenceLines
from hotplate.serving.gateway.replicas.probe import probe
from hotplate.serving.gateway.replicas.upstream import ConnectionOwner, Upstream, as_protocol
from hotplate.serving.gateway.sockets.dialing import Streams, connect, open_streams


class ConnectionPool(ConnectionOwner):
    """One replica's connections, of which idle ones are used newest first, and its ejection."""

    def __init__(
        self,
        replica: ReplicaRoute,
        route: str,
        ready_path: str,
        limits: Limits,
        on_change: Callable[[ConnectionPool], None],
        backup: ConnectionBackup | None = None,
    ) -> None:
        """`route` is its name. `on_change` is called when the replica is ejected, for another
        reason, or restored.
        `backup` gets its connections, if there is one."""
        self.relays = False
        self.id = replica.id
        self.address = replica.address
        self.worker = replica.worker
        self._route = route
        self._uid = replica.uid
        self.fence = FenceLines(replica, route)
        self.ejection = Ejection()
        local = unix_path(replica.address) is not None
        self.public_address = replica.id if local else replica.address
        self.host_field = b"localhost" if local else replica.address.encode()
        self._ready_path = ready_path
        self._on_change = on_change
        self._next_probe: asyncio.TimerHandle | None = None
        self._limits = limits
        self._idle: list[Upstream] = []
        self.heads: HeadCache[ResponseHead] = HeadCache()
        self._backup = backup
        self._backed_up: dict[Upstream, int] = {}
        """The connections' numbers in the backup."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False
        self._loop = asyncio.get_running_loop()

    def leads_to(self, replica: ReplicaRoute) -> bool:
        mine = self.address, self.worker, self._uid
        return mine == (replica.address, replica.worker, replica.uid)

    def follow(self, replica: ReplicaRoute) -> None:
        """The table says how many slots it has."""
        self.fence = FenceLines(replica, self._route)

    def dispatch(self, call: Call, now: float) -> None:
        """Sends the call on an idle connection, or on a new one."""
        while self._idle:
            upstream = self._idle.pop()
            # If it came back in this turn of the loop, its end cannot have been noticed yet.
            if upstream.idle_since == now or upstream.usable:
                upstream.serve(call)
                return
            upstream.abort()
        self.connect(call)

    def connect(self, call: Call) -> None:
        """Sends the call on a new connection."""
        self._begin(self._connect(call))

    def now(self) -> float:
        """The loop's time, seconds."""
        return self._loop.time()

    def take_back(self, upstream: Upstream, now: float) -> None:
        """Takes back a connection whose response has ended."""
        if self._closed:
            upstream.close()
            return
        upstream.idle_since = now
        self._idle.append(upstream)
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._limits.upstream_idle_s, self._close_idle)

    def tunnel_opened(self, upstream: Upstream) -> None:
        """The connection is a tunnel now and ends with this gateway, because no response will show
        the end of the handler: its server has to notice at once that the caller has gone."""
        if self._backup is not None and upstream in self._backed_up:
            self._backup.closed(self._backed_up.pop(upstream))

    def connection_ended(self, upstream: Upstream) -> None:
        self.tunnel_opened(upstream)
        if upstream in self._idle:
            self._idle.remove(upstream)

    def close(self) -> None:
        """Closes idle connections now, and the others as their responses end."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for upstream in self._idle:
            upstream.close()
        self._idle.clear()
        if self._next_probe is not None:
            self._next_probe.cancel()

    def abort(self) -> None:
        """Ends all connections, if it leads to another gateway, which has gone without a notice."""

    def refused(self, error: OSError) -> None:
        self.failed(f"it takes no connection: {str(error) or 'none in time'}")

    def failed(self, reason: str) -> None:
        """The replica refused or died: it is ejected until a probe succeeds."""
        if not self._closed and self.ejection.fail(reason):
            self._on_change(self)
            self._probe_later()

    # Inside

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _probe_later(self) -> None:
        self._next_probe = self._loop.call_later(
            self.ejection.next_probe_s(), lambda: self._begin(self._probe())
        )

    async def _probe(self) -> None:
        problem = await probe(self._dial, self._ready_path if self.worker else "", self.fence)
        if self._closed:
            return
        if self.ejection.probed(problem):
            self._on_change(self)
        if problem:
            self._probe_later()

    async def _connect(self, call: Call) -> None:
        try:
            async with asyncio.timeout(self._limits.connect_s):
                upstream = await self._open()
        except OSError as error:  # a timeout is one of them
            self.refused(error)
            call.unreachable()
            return
        if call.is_wanted:
            upstream.serve(call)
        else:
            self.take_back(upstream, self.now())

    async def _open(self) -> Upstream:
        upstream = Upstream(self)
        await connect(lambda: as_protocol(upstream), self.address)
        descriptor = upstream.descriptor
        if self._backup is not None and descriptor >= 0:
            self._backed_up[upstream] = self._backup.opened(self.id, descriptor)
        return upstream

    async def _dial(self) -> Streams:
        return await open_streams(self.address)

    def _close_idle(self) -> None:
        self._sweep = None
        oldest = self._loop.time() - self._limits.upstream_idle_s
        for upstream in [u for u in self._idle if u.idle_since <= oldest]:
            self._idle.remove(upstream)
            upstream.close()
        if self._idle:
            due = self._idle[0].idle_since + self._limits.upstream_idle_s
            self._sweep = self._loop.call_at(due, self._close_idle)
