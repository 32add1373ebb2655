"""The JSON that the bentoml client parses; pure.

The client turns null into the word "None" where it expects a string, so strings that are unused
are empty. A bento's `name` is its version: `deployment update` builds the tag from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from hotplate.platform.spec.deployment_host import STAR, deployment_host
from hotplate.platform.spec.reason_note import with_reason
from hotplate.platform.spec.scopes import OF_API, allows
from hotplate.platform.store.records import (
    Artifact,
    Deployment,
    Kind,
    Organization,
    Repository,
    Revision,
    RolloutOutcome,
    Secret,
    Token,
    User,
)
from hotplate.serving.gateway.protocol.version_shares import MAIN

Json = dict[str, Any]

STRATEGIES = {Kind.BENTO: "proxy", Kind.MODEL: "presigned_url"}
"""Bentos are small: one request. Models go up in parts, in parallel, each tried again."""


def user(user: User) -> Json:
    """A user as BentoCloud's JSON."""
    return {
        "uid": user.uid,
        "name": user.name,
        "email": user.email,
        "first_name": "",
        "last_name": "",
    }


def organization(organization: Organization) -> Json:
    """An organization as BentoCloud's JSON."""
    created = organization.created_at
    head = _resource("organization", organization.uid, organization.name, created, created)
    return head | {"description": organization.description}


def token(token: Token) -> Json:
    """Without the token itself."""
    created, ends = token.created_at, token.expires_at
    head = _resource("api_token", token.uid, token.name, created, created)
    return head | {
        "description": token.description,
        "scopes": list(token.scopes),
        "user": user(token.user),
        "organization": organization(token.user.organization),
        "expired_at": _moment(ends),
        "last_used_at": _moment(token.last_used_at),
        "is_expired": ends is not None and ends <= datetime.now(UTC),
        "is_api_token": any(allows(token.scopes, scope) for scope in OF_API),
        "is_organization_token": token.is_organizations,
        "is_global_access": False,
    }


def secret(secret: Secret, cluster_name: str) -> Json:
    """Without its values: the client must not find the word `value`, or it prints it."""
    content = secret.content
    head = _resource("secret", secret.uid, secret.name, secret.created_at, secret.updated_at)
    return head | {
        "description": secret.description,
        "creator": user(secret.creator),
        "cluster": cluster(cluster_name, secret),
        "content": {
            "type": str(content.type),
            "items": [{"key": item.key, "sub_path": item.sub_path} for item in content.items],
            "path": content.path or None,
            "stage": str(content.stage),
        },
    }


def cluster(name: str, owned: Deployment | Secret) -> Json:
    """The installation, as the cluster of a deployment or secret."""
    tenant = owned.organization
    head = _resource("cluster", f"cluster-{name}", name, tenant.created_at, tenant.created_at)
    return head | {
        "description": "",
        "organization_name": tenant.name,
        "creator": user(owned.creator),
        # Anything else makes the client add query parameters to the dashboard's address.
        "is_first": True,
    }


def repository(repository: Repository, latest: Artifact | None) -> Json:
    """A repository with its newest version, if it has one."""
    head = _resource(
        f"{repository.kind}_repository",
        repository.uid,
        repository.name,
        repository.created_at,
        repository.updated_at,
    )
    return head | {
        "description": repository.description,
        f"latest_{repository.kind}": None if latest is None else artifact(latest),
    }


def artifact(
    artifact: Artifact, upload_url: str = "", download_url: str = "", upload_id: str = ""
) -> Json:
    """A bento or model with its repository."""
    kind = artifact.repository.kind
    head = _resource(kind, artifact.uid, artifact.version, artifact.created_at, artifact.updated_at)
    return head | {
        "labels": list(artifact.labels),
        "description": artifact.description,
        "version": artifact.version,
        # No image is built for a deploy.
        "image_build_status": "success",
        "upload_status": artifact.upload_status,
        "upload_finished_reason": artifact.upload_finished_reason,
        "presigned_upload_url": upload_url,
        "presigned_download_url": download_url,
        "manifest": artifact.manifest,
        "transmission_strategy": STRATEGIES[kind],
        "upload_id": upload_id,
        "upload_started_at": _moment(artifact.upload_started_at),
        "upload_finished_at": _moment(artifact.upload_finished_at),
        "build_at": _build_moment(artifact),
        "repository": repository(artifact.repository, None),
    }


def listed(items: Sequence[Json], start: int, total: int) -> Json:
    """A page of items, `start` the first one's index and `total` the number of all."""
    return {"start": start, "count": len(items), "total": total, "items": list(items)}


def deployment(deployment: Deployment, origin: str, cluster_name: str) -> Json:
    """The full form; also what `deployment list` and `delete` parse."""
    head = _resource(
        "deployment",
        deployment.uid,
        deployment.name,
        deployment.created_at,
        deployment.updated_at,
    )
    return head | {
        "labels": list(deployment.labels),
        "status": deployment.status,
        "reason": deployment.reason,
        "log_tail": list(deployment.latest.log_tail),
        "kube_namespace": cluster_name,
        "creator": user(deployment.creator),
        "cluster": cluster(cluster_name, deployment),
        "latest_revision": revision(deployment.latest, deployment),
        "manifest": _manifest(deployment),
        "urls": [deployment_url(deployment, origin)],
    }


def _manifest(deployment: Deployment) -> Json:
    """With a canary, how requests are chosen: the client looks up the weight of each target."""
    if not deployment.canary:
        return {"dev": deployment.dev}
    weights = deployment.canary["weights"]
    routing = {
        "route_type": deployment.canary["route_type"],
        "route_by": deployment.canary["route_by"] or None,
        "weights": {MAIN: 100 - sum(weights.values()), **weights},
    }
    return {"dev": deployment.dev, "routing": routing}


def without_manifest(deployment: Json) -> Json:
    """The same as an item of a list: with its bento's manifest left out, which is large and which
    no command reads of a list. Its own stays where it says something: `code --cluster` finds code
    spaces by it, and `list` shows canaries' weights."""
    for target in deployment["latest_revision"]["targets"]:
        target["bento"]["manifest"] = None
    if deployment["manifest"] == {"dev": False}:
        deployment["manifest"] = None
    return deployment


def without_settings(deployment: Json) -> Json:
    """The same for replicas that call it: without its variables, and what it has printed."""
    for target in deployment["latest_revision"]["targets"]:
        target["config"] = None
    return deployment | {"log_tail": [], "reason": ""}


def origin_of(scheme: str, host: str) -> str:
    """`scheme://host` without a port; IPv6 in brackets."""
    return f"{scheme}://[{host}]" if ":" in host else f"{scheme}://{host}"


def deployment_url(deployment: Deployment, origin: str) -> str:
    """One origin per deployment, never a path: the client's task calls drop prefixes. `origin` is
    that of all of them but for the port, or has a star where the name of each stands."""
    if STAR in origin:
        host = deployment_host(deployment.name, deployment.organization.name)
        return origin.replace(STAR, host)
    return f"{origin}:{deployment.port}"


def revision(revision: Revision, deployment: Deployment) -> Json:
    """A revision of a deployment as BentoCloud's JSON."""
    name = str(revision.number)
    head = _resource(
        "deployment_revision", revision.uid, name, revision.created_at, revision.created_at
    )
    targets = [_target(revision, deployment, MAIN)]
    if revision == deployment.latest:
        targets += [_target(each.latest, each, each.version) for each in deployment.versions]
    return head | {
        "creator": user(deployment.creator),
        "status": "inactive" if revision.outcome is RolloutOutcome.FAILED else "active",
        "targets": targets,
    }


def _target(revision: Revision, deployment: Deployment, name: str) -> Json:
    head = _resource(
        "deployment_target", revision.uid, name, revision.created_at, revision.created_at
    )
    return head | {
        "creator": user(deployment.creator),
        "config": {
            **revision.config,
            "services": with_reason(revision.config.get("services") or {}, deployment.reason),
            "labels": list(deployment.labels),
            "canary": None,
        },
        "bento": artifact(revision.bento),
    }


def instance_type(described: Mapping[str, Any]) -> Json:
    """A size of instance as the controller describes it, with the fields that every object has."""
    name = described["display_name"]
    epoch = datetime.fromtimestamp(0, UTC)
    return _resource("resource_instance", f"instance-type-{name}", name, epoch, epoch) | dict(
        described
    )


def _resource(kind: str, uid: str, name: str, created: datetime, updated: datetime) -> Json:
    return {
        "uid": uid,
        "created_at": created.isoformat(),
        "updated_at": updated.isoformat(),
        "deleted_at": None,
        "name": name,
        "resource_type": kind,
        "labels": [],
    }


def _moment(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _build_moment(artifact: Artifact) -> str:
    """The client sends UTC without saying so, and compares what it gets with aware moments."""
    try:
        at = datetime.fromisoformat(artifact.build_at)
    except ValueError:
        at = artifact.created_at
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()
