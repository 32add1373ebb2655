"""The connections of a route's callers: where they arrive, which may stay, and which have to go."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

from hotplate.serving.gateway.callers.downstream import Downstream, as_protocol
from hotplate.serving.gateway.callers.host import Host
from hotplate.serving.gateway.callers.route_listener import Peers, RouteListener
from hotplate.serving.gateway.callers.sweep import Sweep
from hotplate.serving.gateway.errors import TooManyConnections


class CallerConnections:
    """All connections of one route's callers."""

    def __init__(
        self,
        host: Host,
        *,
        ended: Callable[[], None],
        error_changed: Callable[[], None],
        peers: Peers | None,
    ) -> None:
        """`ended` is called when a caller has gone, `error_changed` when the listener's error has
        changed; `peers` are the gateways that may listen there too."""
        dispatcher = host.context.dispatcher
        self.listener = RouteListener(
            dispatcher.route.name, lambda: as_protocol(self.new()), error_changed, peers
        )
        self.retiring = False
        """No new caller is accepted, and the next response to each is the last one."""
        self.parting = False
        """The same, but new callers are accepted for a while."""
        self._host = host
        self._dispatcher = dispatcher
        self._ended = ended
        self._open: set[Downstream] = set()
        self._sweep = Sweep(self._open, lambda: dispatcher.limits.sweep_s)

    def new(self, *, relayed: bool = False) -> Downstream:
        """Makes a connection; `relayed`: another gateway opens it, for its callers."""
        return Downstream(self._host, opened=self._opened, closed=self._closed, relayed=relayed)

    def __iter__(self) -> Iterator[Downstream]:
        return iter(list(self._open))

    def __len__(self) -> int:
        return len(self._open)

    # For the route

    async def listen(self) -> None:
        """Has callers arrive where the route says, and nowhere else."""
        route = self._dispatcher.route
        await self.listener.listen(route.host, route.port, route.tls_certificate, route.tls_key)

    async def adopt(self, listening: socket.socket) -> bool:
        """Has callers arrive on another gateway's socket too; returns whether it is one of this
        route's."""
        draining = self.retiring or self._dispatcher.closing
        return not draining and await self.listener.adopt(listening)

    def drain(self) -> None:
        """Accepts no new callers, and closes idle connections."""
        self.listener.close()
        for caller in self:
            caller.close_if_idle()

    def retire(self, idle_s: float) -> None:
        """Accepts no new callers. Those that are connected are served until each has had a response
        that says that it is the last, or has been idle for `idle_s`. Call it again and again."""
        if not self.retiring:
            self.retiring = True
            self.listener.close()
        for caller in self:
            caller.close_if_idle(idle_s)
        self._ended()

    def abort(self) -> None:
        for caller in self:
            caller.abort()

    def stop(self) -> None:
        """Stops the checks of callers."""
        self._sweep.stop()

    # Inside

    def _opened(self, caller: Downstream) -> None:
        dispatcher = self._dispatcher
        self._open.add(caller)
        if dispatcher.closing:
            caller.close()
            return
        others = len(self._open) - 1
        if others >= dispatcher.limits.connections:
            message = (
                f"{dispatcher.route.name}: {others} connections are open; use fewer, or come later."
            )
            caller.turn_away(TooManyConnections(message, retry_after_s=5))
        self._sweep.watch()

    def _closed(self, caller: Downstream) -> None:
        self._open.discard(caller)
        self._ended()
