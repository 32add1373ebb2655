"""What the series are told of a deployment: its replicas, and what they have to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hotplate.deploy.engine import Engine, Replica, ReplicaState
from hotplate.platform.controller.deployment_state import DeploymentState
from hotplate.platform.controller.deployment_states import DeploymentStates
from hotplate.platform.controller.planning.routing import public_name
from hotplate.platform.instance_type import InstanceType
from hotplate.platform.series.recorder import SeriesRecorder, Subject
from hotplate.platform.series.standby_gpus import standby_gpus
from hotplate.platform.series.track import Seen, Use
from hotplate.platform.store.records import ORGANIZATION
from hotplate.serving.gateway.protocol.routes import TASKS, RouteDemand
from hotplate.serving.gateway.protocol.version_mark import VERSION

_USES = {
    ReplicaState.STARTING: Use.STARTING,
    ReplicaState.READY: Use.READY,
    ReplicaState.UNREADY: Use.UNREADY,
}


class SeriesView:
    """Looks at deployments for the series."""

    def __init__(
        self,
        series: SeriesRecorder,
        states: DeploymentStates,
        engine: Engine,
        demand: Callable[[str], RouteDemand | None],
        types: Mapping[str, InstanceType],
    ) -> None:
        self._series = series
        self._states = states
        self._engine = engine
        self._demand = demand
        self._prices = {name: each.price for name, each in types.items() if each.price}

    def look(self, state: DeploymentState, replicas: Iterable[Replica]) -> None:
        """Its series go on from how it is now."""
        deployment = state.deployment
        name = public_name(deployment)
        demands = {route.name: self._demand(route.name) for route in state.routes}
        known = {route: demand for route, demand in demands.items() if demand is not None}
        busy = {replica for demand in known.values() for replica in demand.busy}
        own = [known[route] for route in (name, name + TASKS) if route in known]
        self._series.look(
            Subject(
                deployment.id,
                deployment.organization.id,
                deployment.organization.name,
                deployment.name.partition(VERSION)[0],
                name,
            ),
            [seen for replica in replicas if (seen := self._seen(state, replica, busy))],
            wanted=sum(state.targets.values()),
            in_flight=sum(demand.in_flight for demand in own),
            queued=sum(demand.queued for demand in own),
        )

    def standby_gpus(self) -> Mapping[int, float]:
        """How many GPUs standbys hold, by the ids of the organizations whose they are; those that
        all share are the operator's own."""
        if not any(node.in_all.gpus for node in self._engine.capacity().values()):
            return {}
        tenants = {state.deployment.organization for state in self._states}
        ids = {tenant.owner: tenant.id for tenant in tenants}
        if ORGANIZATION in ids:
            ids[""] = ids[ORGANIZATION]
        return standby_gpus(self._engine.standbys.views(), ids)

    def _seen(self, state: DeploymentState, replica: Replica, busy: Iterable[str]) -> Seen | None:
        """None where it has no resources: it waits for room, or has ended."""
        use = _USES.get(replica.state)
        if (replica.id in state.draining and use is Use.READY) or replica.leaves:
            use = Use.DRAINING
        elif replica.state is ReplicaState.STOPPING and replica.node:
            use = Use.STARTING  # it never came to anything else
        if use is None:
            return None
        service = state.find(replica.key)
        size = "" if service is None else service.workload.instance_type
        return Seen(
            id=replica.id,
            service=replica.key.service,
            use=use,
            is_busy=replica.id in busy,
            gpus=replica.resources.gpus,
            price_h=self._prices.get(size),
            ready_at=replica.ready_at,
        )
