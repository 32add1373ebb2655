"""When a route looks at the WebSockets whose callers have gone, and what becomes of their slots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from hotplate.serving.gateway.proxy.abandoned import Abandoned
from hotplate.serving.gateway.proxy.alarm import Alarm

if TYPE_CHECKING:
    from hotplate.serving.gateway.proxy.exchange import Exchange
    from hotplate.serving.gateway.route_server import RouteServer


class Hangups:
    """Of one route; `Abandoned` decides. `changed`: there are fewer abandoned handlers."""

    def __init__(self, server: RouteServer, changed: Callable[[], None]) -> None:
        self._server = server
        self._changed = changed
        self._abandoned: Abandoned[Exchange] = Abandoned()
        self._alarm = Alarm(self._ring)

    @property
    def by_replica(self) -> Mapping[str, int]:
        """Handlers that go on though their slots have been given again; absent = none."""
        return self._abandoned.by_replica

    def left(self, exchange: Exchange) -> None:
        """Its caller has gone, and the replica was told."""
        server, ticket = self._server, exchange.ticket
        if ticket is None or ticket.replica is None:
            return
        now, after_s = server.loop.time(), server.limits.abandon_s
        self._abandoned.left(exchange, ticket.replica.id, now, after_s)
        self._watch()

    def ended(self, exchange: Exchange) -> None:
        """The replica is done with it."""
        if self._abandoned.ended(exchange):
            self._changed()

    def stop(self) -> None:
        self._alarm.cancel()

    # Inside

    def _watch(self) -> None:
        at = self._abandoned.next_at
        if at is not None:
            self._alarm.set(at)

    def _ring(self) -> None:
        for exchange in self._abandoned.due(self._server.loop.time()):
            self._server.withdraw(exchange)
        self._watch()
