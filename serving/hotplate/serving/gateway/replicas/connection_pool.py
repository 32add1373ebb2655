"""One replica as the gateway sees it: the connections to it, and whether it is out."""

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
from hotplate.serving.gateway.replicas.probe import trouble_of
from hotplate.serving.gateway.replicas.upstream import ConnectionOwner, Upstream, as_protocol
from hotplate.serving.gateway.sockets.dialing import Streams, connect, open_streams


class ConnectionPool(ConnectionOwner):
    """One replica: its connections, of which idle ones are used newest first, and its health."""

    def __init__(
        self,
        replica: ReplicaRoute,
        ready_path: str,
        limits: Limits,
        told: Callable[[ConnectionPool], None],
        backup: ConnectionBackup | None = None,
    ) -> None:
        """`told` is called as the replica goes out, or for another reason, or comes in again.
        Its connections are in the `backup`, if there is one."""
        self.relays = False
        self.id = replica.id
        self.address = replica.address
        self.worker = replica.worker
        self.ejection = Ejection()
        local = unix_path(replica.address) is not None
        self.shown = replica.id if local else replica.address
        self.host_field = b"localhost" if local else replica.address.encode()
        self._ready_path = ready_path
        self._told = told
        self._next_try: asyncio.TimerHandle | None = None
        self._limits = limits
        self._idle: list[Upstream] = []
        self.heads: HeadCache[ResponseHead] = HeadCache()
        self._backup = backup
        self._backed_up: dict[Upstream, int] = {}
        """The connections' numbers there."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False
        self._loop = asyncio.get_running_loop()

    def leads_to(self, replica: ReplicaRoute) -> bool:
        return (self.address, self.worker) == (replica.address, replica.worker)

    def dispatch(self, call: Call, now: float) -> None:
        """Sends the call on an idle connection, or on a new one."""
        while self._idle:
            upstream = self._idle.pop()
            # One that came back in this turn of the loop cannot have been found closed yet.
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

    def put(self, upstream: Upstream, now: float) -> None:
        """Takes back a connection whose answer has ended."""
        if self._closed:
            upstream.close()
            return
        upstream.idle_since = now
        self._idle.append(upstream)
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._limits.upstream_idle_s, self._close_idle)

    def leave_out(self, upstream: Upstream) -> None:
        """The connection is a tunnel now, and ends with this gateway: its server is to see at once
        that the caller has gone, for no answer will tell the handler's end."""
        if self._backup is not None and upstream in self._backed_up:
            self._backup.closed(self._backed_up.pop(upstream))

    def forget(self, upstream: Upstream) -> None:
        self.leave_out(upstream)
        if upstream in self._idle:
            self._idle.remove(upstream)

    def close(self) -> None:
        """Closes what is idle now, and everything else as its answer ends."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for upstream in self._idle:
            upstream.close()
        self._idle.clear()
        if self._next_try is not None:
            self._next_try.cancel()

    def refused(self, error: OSError) -> None:
        self.failed(f"it takes no connection: {str(error) or 'none in time'}")

    def failed(self, reason: str) -> None:
        """The replica refused or died: it is out until a try of it goes well."""
        if not self._closed and self.ejection.fail(reason):
            self._told(self)
            self._try_later()

    # Inside

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _try_later(self) -> None:
        self._next_try = self._loop.call_later(
            self.ejection.next_try_s(), lambda: self._begin(self._try())
        )

    async def _try(self) -> None:
        trouble = await trouble_of(self._dial, self._ready_path if self.worker else "")
        if self._closed:
            return
        if self.ejection.tried(trouble):
            self._told(self)
        if trouble:
            self._try_later()

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
            self.put(upstream, self.now())

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
