"""When a route looks at the requests whose bodies still come, and what becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotplate.serving.gateway.alarm import Alarm
from hotplate.serving.gateway.arrivals import Arrivals
from hotplate.serving.gateway.errors import RequestSlow

if TYPE_CHECKING:
    from hotplate.serving.gateway.exchange import Exchange
    from hotplate.serving.gateway.route_server import RouteServer


class Incoming:
    """Of one route; `Arrivals` decides."""

    def __init__(self, server: RouteServer) -> None:
        self._server = server
        self._loop = server.loop
        self._arrivals: Arrivals[Exchange] = Arrivals(lambda: server.limits)
        self._entries = Alarm(self._let_in)
        self._stalls = Alarm(self._end_stalled)

    def expect(self, exchange: Exchange) -> None:
        """Its turn on its connection has come, its body has not."""
        self._entries.set(self._arrivals.expect(exchange, self._loop.time()))

    def arrived(self, exchange: Exchange) -> None:
        """It is complete, or will not be."""
        self._arrivals.forget(exchange)

    def entered(self, exchange: Exchange) -> None:
        """It goes for a slot, and its body still comes."""
        self._arrivals.entered(exchange)

    def others_wait(self, now: float) -> None:
        """A request waits for a slot that one of these may have."""
        if self._arrivals.any_inside:
            self._stalls.set(now + self._server.limits.stall_s / 4)

    def slot_freed(self) -> None:
        """Somebody may go for a slot."""
        if self._arrivals.any_waiting:
            self._let_in()

    def stop(self) -> None:
        self._entries.cancel()
        self._stalls.cancel()

    # Inside

    def _let_in(self) -> None:
        server, now = self._server, self._loop.time()
        # Where another gateway owns the route, that one minds its slots.
        slots = 2 * server.limits.connections if server.route.relayed else server.queue.slots
        for exchange in self._arrivals.entering(slots, now):
            if exchange.front is not None:
                exchange.front.let_in(exchange)
        at = self._arrivals.next_at(now)
        if at is not None:
            self._entries.set(at)

    def _end_stalled(self) -> None:
        """While others wait, a body that stands still must not have a slot."""
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
        self.others_wait(now)
        self._let_in()
