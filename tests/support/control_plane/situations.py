"""Small deployments, revisions and replicas to plan with."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hotplate.autoscaler.policy import Policy
from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.deploy.workload import Workload, WorkloadKey
from hotplate.platform.controller.planning.observed import Observed
from hotplate.platform.controller.planning.workloads import Service
from hotplate.platform.store.records import (
    Artifact,
    Deployment,
    DesiredState,
    Kind,
    Organization,
    Repository,
    Revision,
    RolloutOutcome,
    User,
)

THEN = datetime(2026, 1, 1, tzinfo=UTC)
NOW = THEN.timestamp() + 1000
ACME = Organization(1, "o", "acme", THEN)
ANN = User(1, "u", "ann", "ann@acme.org", ACME)
BENTO = Artifact(
    id=1,
    uid="b",
    repository=Repository(1, "r", 1, Kind.BENTO, "echo", "", THEN, THEN),
    version="v1",
    description="",
    manifest={"entry_service": "Echo", "services": [{"name": "Echo"}]},
    labels=(),
    build_at="",
    upload_status="success",
    upload_finished_reason="",
    files="f" * 64,
    size_bytes=1,
    created_at=THEN,
    updated_at=THEN,
)


def revision(number: int, outcome: RolloutOutcome = RolloutOutcome.READY) -> Revision:
    return Revision(number, f"r{number}", number, {}, BENTO, outcome, "", (), {}, THEN)


def deployment(latest: Revision, serving: Revision | None, **changes: Any) -> Deployment:
    row = Deployment(
        id=1,
        uid="d",
        organization=ACME,
        creator=ANN,
        name="echo",
        port=7100,
        wanted=DesiredState.RUNNING,
        status="",
        reason="",
        labels=(),
        latest=latest,
        serving=serving,
        created_at=THEN,
        updated_at=THEN,
    )
    return replace(row, **changes)


def key(number: int, service: str = "Echo") -> WorkloadKey:
    return WorkloadKey("acme", "echo", number, service)


def service(
    number: int, name: str = "Echo", dependencies: tuple[str, ...] = (), least: int = 0
) -> Service:
    work = Workload(key(number, name), "echo", "v1", "f" * 64, entry=name == "Echo")
    return Service(work, Policy(least, 5, 1), dependencies, 60)


def replica(
    name: str, number: int = 1, state: ReplicaState = ReplicaState.READY, **changes: Any
) -> Replica:
    ready_at = NOW - 1 if state is ReplicaState.READY else None
    row = Replica(name, key(number), state, created_at=NOW - 10, ready_at=ready_at)
    return replace(row, **changes)


def observed(of: Deployment, *replicas: Replica, **changes: Any) -> Observed:
    revisions = {of.latest.number} | ({of.serving.number} if of.serving else set())
    row = Observed(
        deployment=of,
        services={number: (service(number),) for number in revisions},
        desired={},
        replicas=replicas,
        draining=frozenset(),
        idle=frozenset(),
        busy={},
        ages_s={each.id: NOW - each.created_at for each in replicas},
    )
    return replace(row, **changes)
