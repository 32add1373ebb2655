"""The kinds of objects that the engine knows, and where the API server keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote


@dataclass(frozen=True)
class ObjectKind:
    """One kind; `group` is the beginning of its paths."""

    name: str
    group: str
    plural: str
    namespaced: bool = True

    @property
    def version(self) -> str:
        """As `apiVersion` has it."""
        return self.group.removeprefix("/apis/").removeprefix("/api/")

    def path(self, namespace: str = "", name: str = "") -> str:
        """Of one object, of all of a namespace, or of all; parts of names are quoted."""
        within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        one = f"/{quote(name, safe='')}" if name else ""
        return f"{self.group}{within}/{self.plural}{one}"


_CORE, _APPS, _POLICY = "/api/v1", "/apis/apps/v1", "/apis/policy/v1"
NODE = ObjectKind("Node", _CORE, "nodes", namespaced=False)
NAMESPACE = ObjectKind("Namespace", _CORE, "namespaces", namespaced=False)
ROLE_BINDING = ObjectKind("RoleBinding", "/apis/rbac.authorization.k8s.io/v1", "rolebindings")
CONFIG_MAP = ObjectKind("ConfigMap", _CORE, "configmaps")
SECRET = ObjectKind("Secret", _CORE, "secrets")
SERVICE = ObjectKind("Service", _CORE, "services")
SERVICE_ACCOUNT = ObjectKind("ServiceAccount", _CORE, "serviceaccounts")
POD_DISRUPTION_BUDGET = ObjectKind("PodDisruptionBudget", _POLICY, "poddisruptionbudgets")
DEPLOYMENT = ObjectKind("Deployment", _APPS, "deployments")
POD = ObjectKind("Pod", _CORE, "pods")
JOB = ObjectKind("Job", "/apis/batch/v1", "jobs")
EVENT = ObjectKind("Event", _CORE, "events")

WATCHED = (
    CONFIG_MAP,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    POD_DISRUPTION_BUDGET,
    DEPLOYMENT,
    POD,
)
"""What is watched in the namespace of an organization, of ours alone."""
KINDS: Mapping[str, ObjectKind] = {
    kind.name: kind for kind in (NODE, NAMESPACE, ROLE_BINDING, EVENT, JOB, *WATCHED)
}


class Ref(NamedTuple):
    """Which object of a cluster."""

    kind: str
    namespace: str
    name: str

    @property
    def path(self) -> str:
        kind = KINDS[self.kind]
        return kind.path(self.namespace if kind.namespaced else "", self.name)


def ref_of(manifest: Mapping[str, Any], kind: str = "") -> Ref:
    """Of an object as it is written or read; in lists the server leaves out the kind."""
    meta = manifest["metadata"]
    return Ref(kind or manifest["kind"], meta.get("namespace", ""), meta["name"])
