"""Which replicas of a service requests may go to, and where gateways find more of them; pure."""

from __future__ import annotations

from collections.abc import Sequence

from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.platform.controller.planning.addresses import Addresses
from hotplate.platform.controller.planning.slot_counts import SlotSource
from hotplate.platform.controller.planning.workloads import Service, called_by
from hotplate.serving.gateway.protocol.routes import PodSource, ReplicaRoute


def reachable(
    service: Service,
    members: Sequence[Service],
    replicas: Sequence[Replica],
    draining: frozenset[str],
) -> list[Replica]:
    """The ready replicas; only the draining ones while a service that this one calls, directly or
    not, has no ready replica.

    A request sent sooner would wait inside the replica, with a slot taken and its time running.
    """
    answering = _answering(replicas)
    if _may_serve(service, members, replicas, draining):
        return answering
    return [r for r in answering if r.id in draining]


def _answering(replicas: Sequence[Replica]) -> list[Replica]:
    return [r for r in replicas if r.address and (r.state is ReplicaState.READY or r.leaves)]


def _may_serve(
    service: Service,
    members: Sequence[Service],
    replicas: Sequence[Replica],
    draining: frozenset[str],
) -> bool:
    """Whether each service that this one calls, directly or not, has a ready replica."""
    open_keys = {r.key for r in _answering(replicas) if r.id not in draining}
    called = called_by(members, [service.name])
    return all(s.workload.key in open_keys for s in members if s.name in called)


def pod_sources(
    service: Service,
    members: Sequence[Service],
    replicas: Sequence[Replica],
    draining: frozenset[str],
    addresses: Addresses,
    slots: SlotSource,
) -> tuple[PodSource, ...]:
    """The Service by which gateways find a service's replicas; none while they may have nothing."""
    if addresses.found is None or not _may_serve(service, members, replicas, draining):
        return ()
    key = service.workload.key
    name = addresses.found([each.workload.key for each in members])[key]
    count = slots.of(service)
    like = ReplicaRoute("", "", count.number, worker=True, learns=count.learns, least=count.least)
    return (PodSource(name, like),)
