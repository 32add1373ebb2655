"""Where gateways listen for a deployment, and where they find its replicas; pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hotplate.deploy.workload import WorkloadKey
from hotplate.platform.store.records import Deployment


@dataclass(frozen=True)
class Addresses:
    """Where gateways listen, and where they find replicas."""

    public_host: str
    tls_certificate: str = ""
    """PEM file of the public routes' certificate; empty = plain HTTP."""
    tls_key: str = ""
    hosts: Callable[[Deployment], Sequence[str]] | None = None
    """The names that choose a deployment where all of them share an address; None = each has a
    port of its own on `public_host`."""
    found: Callable[[Collection[WorkloadKey]], Mapping[WorkloadKey, str]] | None = None
    """The Services of Kubernetes by whose pods gateways find replicas themselves, given all
    workloads of a revision; None = all replicas are named."""

    def public(self, deployment: Deployment) -> dict[str, Any]:
        """What a public route says of where its callers arrive; nothing of one of a canary's."""
        if deployment.version:
            return {"host": "", "port": 0}
        if self.hosts is not None:
            return {"host": "", "port": 0, "hosts": tuple(self.hosts(deployment))}
        return {"host": self.public_host, "port": deployment.port}
