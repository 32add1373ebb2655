"""Canaries: versions of a deployment beside `main`.

A version is a deployment of its own, `NAME#VERSION`, with revisions, replicas and a decider of its
own; it has no callers but those whom the gateway gives it, and belongs to the deployment that has
the name. That one keeps how requests are chosen, and the part of each version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from hotplate.autoscaler.sharing.amounts import NOTHING, Amounts
from hotplate.platform.store.deployment_records import latest_revision
from hotplate.platform.store.history import add_event_row
from hotplate.platform.store.org_secrets import check_named
from hotplate.platform.store.quotas import reserve
from hotplate.platform.store.records import DesiredState, RolloutOutcome
from hotplate.platform.store.tables import DeploymentRow, RevisionRow
from hotplate.serving.gateway.protocol.version_mark import VERSION
from hotplate.serving.gateway.protocol.version_shares import VersionShare, laid_out


@dataclass(frozen=True)
class RevisionDraft:
    """What a new revision of a deployment shall be."""

    bento_id: int
    config: Mapping[str, Any]
    least: Amounts = NOTHING
    """What the `min_replicas` of its services need, which the organization's quota must permit."""
    notes: Sequence[tuple[str, str]] = ()
    """Further events of the roll-out: kind and sentence."""
    by: str = ""
    """The name of whoever asks for it."""
    action: str = "deployment.update"
    """As what the audit tells it, unless it is the first."""
    files: str = ""
    """Of a code space: digest of the manifest of what it runs; empty = nothing yet."""


@dataclass(frozen=True)
class CanaryDraft:
    """What versions a deployment shall have beside `main`; without any there is no canary."""

    versions: Mapping[str, RevisionDraft] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)
    """Percent of the requests, by version."""
    route_type: str = ""
    route_by: str = ""


NO_CANARY = CanaryDraft()


def set_canary(
    session: Session, row: DeploymentRow, draft: CanaryDraft, new_port: Callable[[], int]
) -> None:
    """From now on the deployment has these versions: one that stays keeps its replicas, unless its
    bento or settings are others, and one that is not there any longer is torn down."""
    there = {version_id(child): child for child in versions_of(session, row.id)}
    for name, child in there.items():
        if name not in draft.versions:
            end_version(session, child)
    for name, wanted in draft.versions.items():
        found = there.get(name) or _new_version(session, row, name, new_port())
        found.labels, found.host = list(row.labels), row.host
        reserve(session, found, wanted.least)
        if name not in there or not _is_as(session, found, wanted):
            add_revision(session, found, wanted)
            found.wanted, found.status, found.reason = DesiredState.RUNNING, "deploying", ""
            for event in wanted.notes:
                add_event_row(session, row.id, *event)
    weights = {name: draft.weights[name] for name in draft.versions}
    before = row.canary
    row.canary = _kept(row, weights, draft.route_type, draft.route_by)
    if before != row.canary:
        add_event_row(session, row.id, "CanaryChanged", _told(row.canary))


def set_weight(session: Session, row: DeploymentRow, version: str, weight: int) -> None:
    """Another part of the requests for one version, of those that there are."""
    weights = row.canary.get("weights", {}) | {version: weight}
    route_type, route_by = (row.canary.get(key, "") for key in ("route_type", "route_by"))
    row.canary = _kept(row, weights, route_type, route_by)


def wake_versions(session: Session, row: DeploymentRow) -> None:
    """The deployment is started again, and its versions with it. Raises QuotaExceeded."""
    for child in versions_of(session, row.id):
        if child.wanted != DesiredState.RUNNING:
            reserve(session, child, Amounts(**child.least) if child.least else NOTHING)
            latest = latest_revision(session, child.id)
            add_revision(session, child, RevisionDraft(latest.bento_id, latest.config))
            child.wanted, child.status, child.reason = DesiredState.RUNNING, "deploying", ""


def end_version(session: Session, child: DeploymentRow) -> None:
    """Its last requests end, and then its replicas."""
    child.wanted, child.status, child.reason = DesiredState.DELETED, "terminating", ""


def versions_of(session: Session, deployment_id: int) -> list[DeploymentRow]:
    """The deployments that are versions of this one and are not being torn down."""
    query = select(DeploymentRow).where(
        DeploymentRow.parent_id == deployment_id, DeploymentRow.wanted != DesiredState.DELETED
    )
    return list(session.scalars(query.order_by(DeploymentRow.id)))


def version_id(child: DeploymentRow) -> str:
    return child.name.partition(VERSION)[2]


def add_revision(session: Session, row: DeploymentRow, draft: RevisionDraft) -> int:
    """The number of a new revision, which is to be rolled out. Raises Invalid where its config
    names a secret that is not there."""
    check_named(session, row.organization_id, draft.config)
    # Numbers go on per name, so that replicas of a deleted deployment are not taken for ours.
    newest = session.scalar(
        select(func.max(RevisionRow.number))
        .join(DeploymentRow, RevisionRow.deployment_id == DeploymentRow.id)
        .where(DeploymentRow.organization_id == row.organization_id, DeploymentRow.name == row.name)
    )
    number = (newest or 0) + 1
    session.add(
        RevisionRow(
            deployment_id=row.id,
            number=number,
            config=dict(draft.config),
            bento_id=draft.bento_id,
            outcome=RolloutOutcome.DEPLOYING,
            by=draft.by,
            files=draft.files,
        )
    )
    session.flush()
    return number


def _new_version(session: Session, row: DeploymentRow, name: str, port: int) -> DeploymentRow:
    child = DeploymentRow(
        organization_id=row.organization_id,
        creator_id=row.creator_id,
        parent_id=row.id,
        name=f"{row.name}{VERSION}{name}",
        port=port,
        wanted=DesiredState.RUNNING,
        status="deploying",
        labels=[],
    )
    session.add(child)
    session.flush()
    session.refresh(child)
    return child


def _is_as(session: Session, child: DeploymentRow, wanted: RevisionDraft) -> bool:
    latest = latest_revision(session, child.id)
    same = latest.bento_id == wanted.bento_id and latest.config == wanted.config
    runs = child.wanted == DesiredState.RUNNING and latest.outcome != RolloutOutcome.FAILED
    return same and runs


def _kept(
    row: DeploymentRow, weights: Mapping[str, int], route_type: str, route_by: str
) -> dict[str, Any]:
    """As the row has it: with the parts of the range that each version has, so that a weight that
    grows moves nobody out."""
    if not weights:
        return {}
    parts = row.canary.get("parts", {})
    shares = laid_out(
        [
            VersionShare(name, "", weight, tuple(map(tuple, parts.get(name, ()))))
            for name, weight in weights.items()
        ]
    )
    return {
        "route_type": route_type,
        "route_by": route_by,
        "weights": dict(weights),
        "parts": {share.id: [list(part) for part in share.parts] for share in shares},
    }


def _told(canary: Mapping[str, Any]) -> str:
    if not canary:
        return "there is no canary any longer: main gets all requests"
    shares = ", ".join(f"{name} {weight} %" for name, weight in canary["weights"].items())
    return f"the canary's versions get {shares}, and main the rest"
