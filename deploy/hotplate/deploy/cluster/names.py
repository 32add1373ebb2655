"""How what exists on a cluster is named: objects, namespaces, labels, annotations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from blake3 import blake3

from hotplate.deploy.workload import WorkloadKey

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
_ENDING_LENGTH = 8


def slug(text: str, most: int) -> str:
    """A name that is good in a host name, made of any text: of at most `most` characters, lower
    case, with `-` for each run of others. Texts that differ in more than case have different ones:
    where something else was lost, it ends with a digest of the text."""
    plain = re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")
    if plain == text.lower() and 0 < len(plain) <= most:
        return plain
    return _with_ending(plain, text, most)


def bases(keys: Iterable[WorkloadKey]) -> dict[WorkloadKey, str]:
    """The name of each workload's objects. `keys` has those of all services of a revision, or none
    of them: two that would have the same name get a digest both."""
    texts = {key: f"{key.deployment}-{key.revision}-{key.service}" for key in keys}
    slugs = {key: slug(text, BASE_LENGTH) for key, text in texts.items()}
    times = Counter((_revision(key), name) for key, name in slugs.items())
    return {
        key: f"h-{name if times[_revision(key), name] == 1 else _digested(texts[key])}"
        for key, name in slugs.items()
    }


def tenant_namespace(release: str, organization: str) -> str:
    """Where an organization's objects are; `release` is the namespace of the installation."""
    return f"{release}-t-{organization}"


def labels(key: WorkloadKey) -> dict[str, str]:
    """Of everything that is a workload's."""
    return {**organization_labels(key.organization), **workload_labels(key)}


def workload_labels(key: WorkloadKey) -> dict[str, str]:
    """Those in which it differs from all others of its namespace."""
    return {
        DEPLOYMENT: key.deployment,
        REVISION: str(key.revision),
        SERVICE: slug(key.service, LABEL_LENGTH),
    }


def deployment_labels(organization: str, deployment: str) -> dict[str, str]:
    """Of everything that is a deployment's."""
    return {**organization_labels(organization), DEPLOYMENT: deployment}


def organization_labels(organization: str) -> dict[str, str]:
    """Of everything that is an organization's."""
    return {MANAGED_BY: PRODUCT, PART_OF: PRODUCT, ORGANIZATION: organization}


def key_in(annotations: Mapping[str, Any]) -> WorkloadKey | None:
    """The workload that an object is of; None if it does not say."""
    found = re.fullmatch(r"([^/]+)/([^/@]+)@(\d+)/(.+)", str(annotations.get(WORKLOAD, "")))
    return WorkloadKey(found[1], found[2], int(found[3]), found[4]) if found else None


def _revision(key: WorkloadKey) -> tuple[str, str, int]:
    return key.organization, key.deployment, key.revision


def _digested(text: str) -> str:
    return _with_ending(re.sub("[^a-z0-9]+", "-", text.lower()).strip("-"), text, BASE_LENGTH)


def _with_ending(plain: str, text: str, most: int) -> str:
    digest = blake3(text.encode()).hexdigest()[:_ENDING_LENGTH]
    kept = plain[: most - _ENDING_LENGTH - 1].rstrip("-")
    return f"{kept}-{digest}" if kept else digest
