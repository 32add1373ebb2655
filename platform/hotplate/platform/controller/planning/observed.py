"""One deployment as it is now, and how its roll-out has ended; what is planned from."""

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
    """Per revision number: latest and serving ones, and those that still have replicas."""
    desired: Mapping[WorkloadKey, int]
    """What the autoscaler recommends."""
    replicas: Sequence[Replica]
    draining: frozenset[str]
    """Replicas that finish what they have and get nothing new."""
    idle: frozenset[str]
    """Draining replicas on which nothing runs, as the gateway confirms, or that had their time."""
    busy: Mapping[str, int]
    """Slots taken per replica, as gateways said last; a replica without is left out."""
    now: float
    """Unix seconds."""
    ordered: frozenset[WorkloadKey] = frozenset()
    """Workloads that the engine is to have replicas of, also if none is there yet."""
    granted: Mapping[WorkloadKey, Allocation] = field(default_factory=dict)
    """What each workload may have at most; one without may have what it wants."""
    unserved: str = ""
    """Why nobody can call it, e.g. another program listens on its port."""

    def of(self, key: WorkloadKey) -> list[Replica]:
        """The replicas of one workload."""
        return [replica for replica in self.replicas if replica.key == key]

    def most(self, key: WorkloadKey, wanted: int) -> int:
        """As much of it as is granted."""
        grant = self.granted.get(key)
        return wanted if grant is None else min(wanted, grant.replicas)

    def cut(self, keys: Iterable[WorkloadKey]) -> str:
        """Why one of these gets less than it wants; empty where none does."""
        reasons = (self.granted[key].reason for key in keys if key in self.granted)
        return next(filter(None, reasons), "")


@dataclass(frozen=True)
class RolloutVerdict:
    """How the roll-out of the latest revision ended."""

    outcome: RolloutOutcome
    reason: str
    log_tail: tuple[str, ...] = ()
