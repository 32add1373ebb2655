"""The connections to a route's replicas, or to the gateway that owns the route."""

from __future__ import annotations

from collections.abc import Callable, Container

from hotplate.serving.gateway.fleet.connection_backup import ConnectionBackup
from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.protocol.routes import ReplicaRoute, Route
from hotplate.serving.gateway.replicas.connection_pool import ConnectionPool
from hotplate.serving.gateway.replicas.relay_pool import RelayPool


class ConnectionPools:
    """One pool per replica, by its id."""

    def __init__(
        self,
        limits: Limits,
        on_change: Callable[[ConnectionPool], None],
        backup: ConnectionBackup | None = None,
    ) -> None:
        """`on_change` is called when a replica is ejected or restored. `backup` gets the
        connections to servers that are not our workers."""
        self._limits = limits
        self._on_change = on_change
        self._backup = backup
        self._pools: dict[str, ConnectionPool] = {}

    def of(self, replica_id: str) -> ConnectionPool:
        return self._pools[replica_id]

    def find(self, replica_id: str) -> ConnectionPool | None:
        """None = the route does not name it."""
        return self._pools.get(replica_id)

    def follow(self, route: Route) -> None:
        """Makes a pool for each replica of the route at its address; others stay."""
        for replica in route.replicas:
            pool = self._pools.get(replica.id)
            if pool is not None and pool.leads_to(replica):
                pool.follow(replica)
                continue
            if pool is not None:
                pool.close()
            self._pools[replica.id] = pool = self._new(route, replica)
            self._on_change(pool)

    def keep(self, replica_ids: Container[str]) -> None:
        """Closes the pools of all other replicas."""
        for replica_id in [name for name in self._pools if name not in replica_ids]:
            self.close(replica_id)

    def close(self, replica_id: str) -> None:
        pool = self._pools.pop(replica_id, None)
        if pool is not None:
            pool.close()

    def _new(self, route: Route, replica: ReplicaRoute) -> ConnectionPool:
        if route.relayed:
            assert self._backup is not None, "it has others to pass requests on to"
            proof = self._backup.proof
            return RelayPool(replica, route.name, self._limits, self._on_change, proof)
        backup = None if replica.worker else self._backup
        return ConnectionPool(
            replica, route.name, route.ready_path, self._limits, self._on_change, backup
        )
