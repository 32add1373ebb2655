"""Which replicas to make and which to stop so that there are as many as desired."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from hotplate.deploy.engine import ENDS_FIRST, ReplicaState
from hotplate.deploy.workload import WorkloadKey


@dataclass(frozen=True)
class Member:
    """What the plan needs to know of one replica."""

    id: str
    key: WorkloadKey
    state: ReplicaState
    created_at: float


@dataclass(frozen=True)
class ScalePlan:
    """What has to happen."""

    create: Mapping[WorkloadKey, int]
    """How many new replicas per workload."""
    stop: Mapping[str, str]
    """Reason per replica id."""


def make_plan(
    desired: Mapping[WorkloadKey, int],
    replicas: Sequence[Member],
    *,
    expected: Set[WorkloadKey] | None,
) -> ScalePlan:
    """Compare the numbers `desired` with the replicas there are.

    A replica that is being stopped no longer counts; one that has failed does, because a new one
    would fail too. Replicas of workloads that are not `expected` are stopped; None = nobody has
    said yet which are.
    """
    by_key: dict[WorkloadKey, list[Member]] = defaultdict(list)
    for replica in replicas:
        if replica.state is not ReplicaState.STOPPING:
            by_key[replica.key].append(replica)
    create = {}
    stop = {}
    for key, count in desired.items():
        surplus = len(by_key[key]) - count
        if surplus < 0:
            create[key] = -surplus
        for replica in sorted(by_key[key], key=_goes_first)[: max(surplus, 0)]:
            stop[replica.id] = f"scaled to {count}"
    if expected is not None:
        for key in by_key.keys() - expected:
            stop |= {replica.id: "it is no longer wanted" for replica in by_key[key]}
    return ScalePlan(create, stop)


def _goes_first(replica: Member) -> tuple[int, float, str]:
    """Sorts who serves nobody before who serves, and the younger before the older."""
    return ENDS_FIRST.index(replica.state), -replica.created_at, replica.id
