"""The connections to a route's replicas, or to the gateway that owns the route."""

from __future__ import annotations

from collections.abc import Container

from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.relay import RelayPool
from hotplate.serving.gateway.routes import Route
from hotplate.serving.gateway.upstream import Pool


class Pools:
    """One pool per replica, by its id."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pools: dict[str, Pool] = {}

    def of(self, replica_id: str) -> Pool:
        return self._pools[replica_id]

    def follow(self, route: Route) -> None:
        """There is a pool to where each replica of the route is; others stay."""
        for replica in route.replicas:
            pool = self._pools.get(replica.id)
            if pool is None or pool.address != replica.address:
                if pool is not None:
                    pool.close()
                self._pools[replica.id] = self._new(route, replica.address)

    def keep(self, replica_ids: Container[str]) -> None:
        """Closes all others."""
        for replica_id in [name for name in self._pools if name not in replica_ids]:
            self.close(replica_id)

    def close(self, replica_id: str) -> None:
        pool = self._pools.pop(replica_id, None)
        if pool is not None:
            pool.close()

    def _new(self, route: Route, address: str) -> Pool:
        if route.relayed:
            return RelayPool(address, route.name, self._limits)
        return Pool(address, self._limits)
