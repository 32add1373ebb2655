"""How what exists on a cluster is named: objects, namespaces, labels, annotations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from hotplate.deploy.workload import WorkloadKey
from hotplate.machine.slug import digested_slug, slug

MANAGED_BY = "app.kubernetes.io/managed-by"
PART_OF = "app.kubernetes.io/part-of"
PRODUCT = "hotplate"
"""The value of both: it marks every object that is ours."""
ORGANIZATION = "hotplate.dev/organization"
DEPLOYMENT = "hotplate.dev/deployment"
REVISION = "hotplate.dev/revision"
SERVICE = "hotplate.dev/service"
ROLE = "hotplate.dev/role"
WORKLOAD = "hotplate.dev/workload"
"""The annotation that says in full which workload an object is of."""
MANIFEST = "hotplate.dev/manifest"
"""The annotation with the digest of what was applied last."""
DRAIN = "hotplate.dev/drain"
"""The finalizer of an anchor: it goes when none of the deployment's pods is left."""

DEPLOYER = "hotplate-deployer"
SCALER = "hotplate-scaler"
"""The managers of fields: of all that is applied, and of how many replicas there are and which of
them are to go first."""

LABEL_LENGTH = 63
"""The most characters of a label's value, and of a name that is part of a host name (RFC 1123)."""
BASE_LENGTH = 42
"""Of the part of a workload's name that its key decides. With `h-` before it, and after it what
Kubernetes and we add to names of pods and of other objects, it stays below 63."""

_LABEL = re.compile("[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def bases(keys: Iterable[WorkloadKey]) -> dict[WorkloadKey, str]:
    """The name of each workload's objects. `keys` has those of all services of a revision, or none
    of them: two that would have the same name get a digest both."""
    texts = {key: f"{key.deployment}-{key.revision}-{key.service}" for key in keys}
    slugs = {key: slug(text, BASE_LENGTH) for key, text in texts.items()}
    times = Counter((_revision(key), name) for key, name in slugs.items())
    for key, name in slugs.items():
        if times[_revision(key), name] > 1:
            slugs[key] = digested_slug(texts[key], BASE_LENGTH)
    return {key: f"h-{name}" for key, name in slugs.items()}


def tenant_namespace(release: str, organization: str) -> str:
    """Where an organization's objects are; `release` is the namespace of the installation."""
    return f"{release}-t-{organization}"


def deployment_name(deployment: str) -> str:
    """Of its anchor, and in labels: what its user called it, which is good there. The name of a
    canary's version has a sign that is not, so it has a slug."""
    is_good = len(deployment) <= LABEL_LENGTH and _LABEL.fullmatch(deployment)
    return deployment if is_good else slug(deployment, LABEL_LENGTH)


def labels(key: WorkloadKey) -> dict[str, str]:
    """Of everything that is a workload's."""
    return {**organization_labels(key.organization), **workload_labels(key)}


def workload_labels(key: WorkloadKey) -> dict[str, str]:
    """Those in which it differs from all others of its namespace."""
    return {
        DEPLOYMENT: deployment_name(key.deployment),
        REVISION: str(key.revision),
        SERVICE: slug(key.service, LABEL_LENGTH),
    }


def deployment_labels(organization: str, deployment: str) -> dict[str, str]:
    """Of everything that is a deployment's."""
    return {**organization_labels(organization), DEPLOYMENT: deployment_name(deployment)}


def organization_labels(organization: str) -> dict[str, str]:
    """Of everything that is an organization's."""
    return {MANAGED_BY: PRODUCT, PART_OF: PRODUCT, ORGANIZATION: organization}


def key_in(annotations: Mapping[str, Any]) -> WorkloadKey | None:
    """The workload that an object is of; None if it does not say."""
    found = re.fullmatch(r"([^/]+)/([^/@]+)@(\d+)/(.+)", str(annotations.get(WORKLOAD, "")))
    return WorkloadKey(found[1], found[2], int(found[3]), found[4]) if found else None


def _revision(key: WorkloadKey) -> tuple[str, str, int]:
    return key.organization, key.deployment, key.revision
