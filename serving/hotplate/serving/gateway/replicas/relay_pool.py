"""Connections between two gateways, for requests to the owner of a deployment.

The gateway that received a request passes it on over the owner's private socket, as to a replica,
but without a queue or slots of its own. The connection opens with a line that names the deployment;
what follows is HTTP/1.1, with the caller's address, protocol, host and request id as the first
gateway wrote them. Whatever the owner decides (admission, queue, 429, 503, 504) is its response,
which is passed back byte for byte. When a caller leaves, its connection ends too.
"""

from __future__ import annotations

from collections.abc import Callable

from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.protocol.routes import ReplicaRoute
from hotplate.serving.gateway.replicas.connection_pool import ConnectionPool
from hotplate.serving.gateway.replicas.upstream import Upstream, as_protocol
from hotplate.serving.gateway.sockets.dialing import Streams
from hotplate.serving.gateway.sockets.handshake import connect_proven, open_proven_streams
from hotplate.serving.gateway.sockets.proof import Proof


class RelayPool(ConnectionPool):
    """Connections to the owner's private socket, for one deployment."""

    def __init__(
        self,
        owner: ReplicaRoute,
        deployment: str,
        limits: Limits,
        on_change: Callable[[ConnectionPool], None],
        proof: Proof,
    ) -> None:
        super().__init__(owner, deployment, "", limits, on_change)
        self.relays = True
        self.host_field = b"localhost"  # for callers in HTTP/1.0 that named none
        self._proof = proof
        self._open_to_owner: set[Upstream] = set()
        self._opening = deployment.encode() + b"\n"

    async def _open(self) -> Upstream:
        upstream = Upstream(self)
        await connect_proven(lambda: as_protocol(upstream), self.address, self._proof)
        upstream.write(self._opening)
        self._open_to_owner.add(upstream)
        return upstream

    def connection_ended(self, upstream: Upstream) -> None:
        self._open_to_owner.discard(upstream)
        super().connection_ended(upstream)

    def abort(self) -> None:
        """Nothing is heard of the owner any longer."""
        for upstream in list(self._open_to_owner):
            upstream.silent = True
            upstream.abort()

    async def _dial(self) -> Streams:
        return await open_proven_streams(self.address, self._proof)
