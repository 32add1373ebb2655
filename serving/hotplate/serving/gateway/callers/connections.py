"""The connections of a route's callers: where they arrive, who may stay, and who is to go."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from hotplate.serving.gateway.callers.downstream import Front, as_protocol
from hotplate.serving.gateway.callers.route_listener import Listener, Peers
from hotplate.serving.gateway.callers.sweep import Rounds
from hotplate.serving.gateway.errors import TooManyConnections

if TYPE_CHECKING:
    from hotplate.serving.gateway.route_server import RouteServer


class Callers:
    """Of one route. `ended` is called when one of them has gone."""

    def __init__(
        self,
        server: RouteServer,
        *,
        ended: Callable[[], None],
        error_changed: Callable[[], None],
        peers: Peers | None,
    ) -> None:
        """`error_changed`: the listener has another error; `peers`: who may listen there too."""
        self.listener = Listener(
            server.route.name, lambda: as_protocol(Front(server)), error_changed, peers
        )
        self.retiring = False
        """Nobody new is accepted, and each one's next answer is the last."""
        self._server = server
        self._ended = ended
        self._id_prefix = secrets.token_hex(6).encode()
        self._ids = 0
        self._fronts: set[Front] = set()
        self._rounds = Rounds(self._fronts, lambda: server.limits.sweep_s)

    def __len__(self) -> int:
        return len(self._fronts)

    def new_id(self) -> bytes:
        """For a request that brought none."""
        self._ids += 1
        return b"%b-%x" % (self._id_prefix, self._ids)

    # Told by the connections

    def opened(self, front: Front) -> None:
        server = self._server
        self._fronts.add(front)
        if server.closing:
            front.close()
            return
        open_ = len(self._fronts) - 1
        if open_ >= server.limits.connections:
            message = (
                f"{server.route.name}: {open_} connections are open; use fewer, or come later."
            )
            front.turn_away(TooManyConnections(message, retry_after_s=5))
        self._rounds.watch()

    def closed(self, front: Front) -> None:
        self._fronts.discard(front)
        self._ended()

    # Told by the route

    async def listen(self) -> None:
        """They arrive where the route says, and nowhere else."""
        route = self._server.route
        await self.listener.listen(route.host, route.port, route.tls_certificate, route.tls_key)

    async def adopt(self, listening: socket.socket) -> bool:
        """They arrive on another gateway's socket too; whether it is one of this route's."""
        parting = self.retiring or self._server.closing
        return not parting and await self.listener.adopt(listening)

    def turn_out(self) -> None:
        """Nobody new comes; those of whom nothing is served leave."""
        self.listener.close()
        for front in list(self._fronts):
            front.close_if_idle()

    def retire(self, idle_s: float) -> None:
        """Nobody new comes; those who are here are served on until each has had an answer that
        says that it is the last, or was idle for that long. To be called again and again."""
        if not self.retiring:
            self.retiring = True
            self.listener.close()
        for front in list(self._fronts):
            front.close_if_idle(idle_s)
        self._ended()

    def cut(self) -> None:
        for front in list(self._fronts):
            front.cut()

    def stop(self) -> None:
        """Nobody is left to look after."""
        self._rounds.stop()
