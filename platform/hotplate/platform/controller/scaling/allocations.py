"""How many replicas each workload may have: its share of what there is, within quotas."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from hotplate.autoscaler.sharing.allocation import NO_QUOTA, Allocation, AllocationRequest, Quota
from hotplate.autoscaler.sharing.allocator import Allocator
from hotplate.autoscaler.sharing.amounts import NOTHING, UNLIMITED, Amounts, amount_text
from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.deploy.workload import Resources, Workload, WorkloadKey
from hotplate.platform.controller.planning.workloads import amounts_of

_ROUNDING = 1e-9


class Allocations:
    """Two things bound a workload: its share of everything (`Allocator`), which says what it should
    have, and its organization's quota beside all that still exists, which says what it may have
    now. What drains or is being stopped counts until it is gone, and so does what the engine was
    told to make and has not made yet: so no race exceeds a quota.
    """

    def __init__(self) -> None:
        self._allocator = Allocator[WorkloadKey]()
        self.quotas: Mapping[str, Quota] = {}
        self._owners: dict[WorkloadKey, int] = {}
        self._asking: dict[int, set[WorkloadKey]] = {}
        self._ordered: dict[WorkloadKey, tuple[int, Amounts]] = {}
        """How many replicas the engine was told to have, and what each takes."""
        self._waiting: set[int] = set()
        """Deployments that wait for others' replicas to be gone."""

    def limit(self, quotas: Mapping[str, Quota], bounds: Resources | None) -> None:
        """From now on organizations may have this, and all together as much as may ever be there;
        None = there is no end to that."""
        self.quotas = quotas
        there = UNLIMITED
        if bounds is not None:
            there = Amounts(bounds.gpus, bounds.cpus, bounds.memory_bytes, replicas=math.inf)
        self._allocator.set_limits(quotas, there)

    @property
    def scarce(self) -> bool:
        """Whether more is asked for than there may be."""
        return self._allocator.scarce

    def request(
        self, deployment_id: int, requests: Sequence[AllocationRequest[WorkloadKey]]
    ) -> None:
        """A deployment asks for this, and for nothing else."""
        keys = {request.key for request in requests}
        for key in self._asking.pop(deployment_id, set()) - keys:
            self._allocator.withdraw(key)
            del self._owners[key]
        if keys:
            self._asking[deployment_id] = keys
        for request in requests:
            self._allocator.request(request)
            self._owners[request.key] = deployment_id

    def share(self) -> None:
        """Once all that have their turn have stated what they ask for: what there is for each."""
        self._allocator.settle()

    def grant(
        self,
        deployment_id: int,
        requests: Sequence[AllocationRequest[WorkloadKey]],
        replicas: Sequence[Replica],
    ) -> dict[WorkloadKey, Allocation]:
        """What the workloads of a deployment get, which asks for nothing else. `replicas` are all
        that exist, of every organization.
        """
        self.request(deployment_id, requests)
        granted = {request.key: self._allocator.allocation(request.key) for request in requests}
        return granted | self._delayed(deployment_id, requests, granted, replicas)

    def note_order(self, workload: Workload, count: int) -> None:
        """The engine was told to have so many replicas of it."""
        if count:
            self._ordered[workload.key] = count, amounts_of(workload.resources)
        else:
            self._ordered.pop(workload.key, None)

    def ordered(self) -> set[WorkloadKey]:
        """Workloads that the engine was told to have replicas of: it may be about to make some."""
        return set(self._ordered)

    def affected(self) -> set[int]:
        """Deployments that get another number than they were told, because of others."""
        return {self._owners[key] for key in self._allocator.affected() if key in self._owners}

    def waiting(self) -> Collection[int]:
        """Deployments to look at when a replica is gone."""
        return self._waiting

    def _delayed(
        self,
        deployment_id: int,
        requests: Sequence[AllocationRequest[WorkloadKey]],
        granted: Mapping[WorkloadKey, Allocation],
        replicas: Sequence[Replica],
    ) -> dict[WorkloadKey, Allocation]:
        """Grants that are smaller for now: the quota is still used by what is on its way out."""
        self._waiting.discard(deployment_id)
        delayed: dict[WorkloadKey, Allocation] = {}
        limits = {
            request.organization: self.quotas.get(request.organization, NO_QUOTA)
            for request in requests
        }
        for name, quota in limits.items():
            if quota.limit == NO_QUOTA.limit:
                continue
            mine = [replica for replica in replicas if replica.key.organization == name]
            used = self._used(name, mine)
            for request in requests:
                live = sum(r.key == request.key and _lives(r) for r in mine)
                have = max(live, self._ordered.get(request.key, (0, NOTHING))[0])
                more = granted[request.key].replicas - have
                fit, scarcest = _fitting(request.each, used, quota.limit)
                if more > fit:
                    why = (
                        f"{have + fit} of {request.wanted} granted now: organization '{name}' uses "
                        f"{amount_text(scarcest, used[scarcest])} of a quota of "
                        f"{amount_text(scarcest, quota.limit[scarcest])} until its stopping "
                        "replicas have ended"
                    )
                    delayed[request.key] = Allocation(have + fit, why, "quota")
                    self._waiting.add(deployment_id)
                used = used.plus(request.each, max(0, min(more, fit)))
        return delayed

    def _used(self, organization: str, replicas: Sequence[Replica]) -> Amounts:
        """What its replicas have, and those that the engine is about to make."""
        used, live = NOTHING, dict[WorkloadKey, int]()
        for replica in replicas:
            used = used.plus(amounts_of(replica.resources))
            live[replica.key] = live.get(replica.key, 0) + _lives(replica)
        for key, (count, each) in self._ordered.items():
            if key.organization == organization:
                used = used.plus(each, max(0, count - live.get(key, 0)))
        return used


def usage(organization: str, replicas: Iterable[Replica]) -> Amounts:
    """What the organization's replicas have, also those that are being stopped."""
    used = NOTHING
    for replica in replicas:
        if replica.key.organization == organization:
            used = used.plus(amounts_of(replica.resources))
    return used


def _lives(replica: Replica) -> bool:
    return replica.state is not ReplicaState.STOPPING


def _fitting(each: Amounts, used: Amounts, limit: Amounts) -> tuple[int, int]:
    """How many more replicas fit, and the resource that limits them."""
    rooms = [
        (math.floor((most - taken) / need + _ROUNDING), dimension)
        for dimension, (need, taken, most) in enumerate(zip(each, used, limit, strict=True))
        if need and most < math.inf
    ]
    fit, dimension = min(rooms, default=(1 << 31, 0))
    return max(0, fit), dimension
