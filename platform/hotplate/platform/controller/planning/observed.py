"""One deployment as it is now, from which the next step is planned, and how its roll-out ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hotplate.autoscaler.sharing.allocation import Allocation
from hotplate.deploy.engine import Replica
from hotplate.deploy.workload import WorkloadKey
from hotplate.platform.controller.planning.workloads import Service
from hotplate.platform.store.records import Deployment, RolloutOutcome


@dataclass(frozen=True)
class Observed:
    """One deployment as it is now."""

    deployment: Deployment
    services: Mapping[int, tuple[Service, ...]]
    """By revision number: the latest and the serving one, and those that still have replicas."""
    desired: Mapping[WorkloadKey, int]
    """The number of replicas of each workload that the autoscaler recommends."""
    replicas: Sequence[Replica]
    draining: frozenset[str]
    """Replicas that finish their requests and get no new ones."""
    idle: frozenset[str]
    """Draining replicas on which nothing runs, as gateways confirm, or whose time is over."""
    busy: Mapping[str, int]
    """Taken slots by replica, as gateways last reported; a replica without any is not in it."""
    ages_s: Mapping[str, float]
    """How long ago each replica was asked for, by a clock that nobody sets."""
    ordered: frozenset[WorkloadKey] = frozenset()
    """Workloads for which the engine was ordered to run replicas, even if none exists yet."""
    allocations: Mapping[WorkloadKey, Allocation] = field(default_factory=dict)
    """The limit of each workload; one without an allocation has no limit."""
    unserved: str = ""
    """Why the deployment cannot be called, e.g. another program listens on its port."""
    uncallable: str = ""
    """Which deployment that its bento names cannot be called, and why; empty = all can."""
    portless: Mapping[int, str] = field(default_factory=dict)
    """Revisions that cannot start, as their services have no ports, and why."""
    now: float = 0.0
    """Unix seconds."""
    worse: str = ""
    """Why the answers of the new revision end its roll-out; empty = they do not."""
    answers: int = 0
    """Of the new revision, since both serve."""

    def replicas_of(self, key: WorkloadKey) -> list[Replica]:
        """The replicas of one workload."""
        return [replica for replica in self.replicas if replica.key == key]

    def allocated(self, key: WorkloadKey, wanted: int) -> int:
        """How many of the wanted replicas the workload's allocation permits."""
        allocation = self.allocations.get(key)
        return wanted if allocation is None else min(wanted, allocation.replicas)

    def shortage(self, keys: Iterable[WorkloadKey]) -> str:
        """Why one of these workloads gets less than it wants; empty where none does."""
        reasons = (self.allocations[key].reason for key in keys if key in self.allocations)
        return next(filter(None, reasons), "")


@dataclass(frozen=True)
class RolloutVerdict:
    """How the roll-out of the latest revision ended."""

    outcome: RolloutOutcome
    reason: str
    log_tail: tuple[str, ...] = ()
    unbuilt: bool = False
    """Whether it failed because its environment could not be built."""
