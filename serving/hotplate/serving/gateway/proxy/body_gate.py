"""When a route looks at slow callers, those whose bodies still come above all, and what becomes of
them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotplate.serving.gateway.errors import BodyNotKept, GatewayError, RequestSlow
from hotplate.serving.gateway.protocol.routes import Change
from hotplate.serving.gateway.proxy.alarm import Alarm
from hotplate.serving.gateway.proxy.slow_bodies import Arrivals
from hotplate.serving.gateway.proxy.spool import Spool, SpoolRoom

if TYPE_CHECKING:
    from hotplate.serving.gateway.callers.downstream import Front
    from hotplate.serving.gateway.proxy.exchange import Exchange
    from hotplate.serving.gateway.proxy.forwarding import Sending
    from hotplate.serving.gateway.route_server import RouteServer

AGAIN_S = 10.0
"""When to come again, of a body that nothing has room for."""


class Incoming:
    """Of one route; `Arrivals` decides."""

    def __init__(self, server: RouteServer) -> None:
        self._server = server
        self._loop = server.loop
        self._arrivals: Arrivals[Sending] = Arrivals(lambda: server.limits)
        self._entries = Alarm(self._let_in)
        self._stalls = Alarm(self._end_stalled)
        self._full: set[Front] = set()
        """Callers who have not taken what was written to them."""
        self._held_bytes = 0
        """In memory, of all that wait for their bodies."""
        self._room = SpoolRoom(lambda: server.limits.spool_bytes)

    @property
    def any_waiting(self) -> bool:
        """Whether a body is waited for."""
        return self._arrivals.any_waiting

    @property
    def held_bytes(self) -> int:
        """Of bodies that are waited for, in memory."""
        return self._held_bytes

    @property
    def spooled_bytes(self) -> int:
        """Of bodies, in files."""
        return self._room.used_bytes

    def expect(self, exchange: Exchange) -> None:
        """Its turn on its connection has come, its body has not."""
        self._entries.set(self._arrivals.expect(exchange, self._loop.time()))
        exchange.held_bytes = exchange.buffered
        self._held_bytes += exchange.buffered
        if not self._server.queue.ready:
            self._server.changed(Change.BEGAN)

    def lends(self, exchange: Exchange) -> bool:
        """Whether it may go for a slot now, and its body follows: much of it is here."""
        slots, free = self._slots()
        return self._arrivals.lends(exchange, slots, free, self._loop.time())

    def arrived(self, exchange: Exchange) -> None:
        """It is complete, or will not be."""
        self._arrivals.forget(exchange)
        self._held_bytes -= exchange.held_bytes
        exchange.held_bytes = 0
        if not self._server.queue.ready:
            self._server.changed(Change.COUNTS)

    def entered(self, exchange: Exchange) -> None:
        """It goes for a slot, and its body still comes."""
        self._arrivals.entered(exchange)

    def others_wait(self, now: float) -> None:
        """A request waits for a slot that one of these may have."""
        if self._arrivals.any_inside:
            self._stalls.set(self._arrivals.next_stall_at(now))
        elif self._full:
            self._stalls.set(now + self._server.limits.stall_s / 4)

    def full(self, front: Front) -> None:
        """The caller has not taken what was written, and its replica may wait for that."""
        self._full.add(front)
        if self._server.queue.queued:
            self.others_wait(self._loop.time())

    def taken(self, front: Front) -> None:
        """The caller has taken it, or has left."""
        self._full.discard(front)

    def slot_freed(self) -> None:
        """Somebody may go for a slot."""
        if self._arrivals.any_hoping:
            self._let_in()

    def keep(self, exchange: Sending, data: bytes) -> GatewayError | None:
        """Keeps more of a body that is waited for; why it cannot be kept."""
        spool = exchange.spool
        if spool is None:
            server, size_bytes = self._server, exchange.held_bytes + len(data)
            all_bytes = self._held_bytes + server.queue.queued_bytes + len(data)
            fits = size_bytes <= server.limits.hold_bytes
            if size_bytes <= server.limits.read_ahead_bytes or (
                fits and all_bytes <= server.queue.room.limit_bytes
            ):
                exchange.held_bytes = size_bytes
                self._held_bytes += len(data)
                exchange.hold(data)
                return None
            spool = exchange.spool = self.spool()
        return self._write(exchange, spool, data)

    def spool(self) -> Spool:
        """For a body that is long."""
        return Spool(self._room)

    def stop(self) -> None:
        self._entries.cancel()
        self._stalls.cancel()

    # Inside

    def _slots(self) -> tuple[int, int]:
        """The route's slots, and those that nobody has or waits for."""
        queue = self._server.queue
        return queue.slots, 0 if queue.queued else queue.slots - queue.in_flight

    def _write(self, exchange: Sending, spool: Spool, data: bytes) -> GatewayError | None:
        while not self._room.has(len(data)):
            other = self._arrivals.to_push_out(exchange, len(data), self._loop.time())
            if other is None:
                return self._not_kept("fill the room that there is")
            other.refuse(self._not_kept("need the room that this one fills"))
        try:
            spool.put(data)
        except OSError as error:
            return self._not_kept(f"find no room on the gateway's disk ({error.strerror})")
        return None

    def _not_kept(self, why: str) -> GatewayError:
        limits = self._server.limits
        return BodyNotKept(
            f"{self._server.route.name}: bodies that are not here whole {why} "
            f"({limits.spool_bytes} bytes); send it again later, or faster.",
            retry_after_s=AGAIN_S,
        )

    def _let_in(self) -> None:
        slots, free = self._slots()
        for exchange in self._arrivals.entering(slots, free, self._loop.time()):
            if exchange.front is not None:
                exchange.front.let_in(exchange)
        at = self._arrivals.next_at()
        if at is not None:
            self._entries.set(at)

    def _end_stalled(self) -> None:
        """While others wait, a body that stands still must not have a slot, nor a caller who does
        not take the answer."""
        server = self._server
        if not server.queue.queued:
            return
        limits, now = server.limits, self._loop.time()
        for exchange in self._arrivals.stalled(now):
            exchange.fail(
                RequestSlow(
                    f"The body stood still for {limits.stall_s:g} s, or came with less than "
                    f"{limits.slow_bytes_per_s} bytes/s, while others wait; send it again at once."
                )
            )
        for front in list(self._full):
            front.end_if_it_takes_little(now)
        self.others_wait(now)
