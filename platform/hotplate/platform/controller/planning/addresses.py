"""Where gateways listen for a deployment, and where they find its replicas; pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hotplate.deploy.workload import WorkloadKey
from hotplate.platform.store.records import Deployment


@dataclass(frozen=True)
class CallTarget:
    """Where the platform itself calls a deployment: as its callers do, by the gateway."""

    url: str
    """Scheme, host and port."""
    host: str = ""
    """What `Host` says; empty = as the URL does."""
    certificate: str = ""
    """PEM file with the one that is believed; empty = plain HTTP."""
    key: str = field(default="", repr=False)
    """What opens a protected one, and is kept from its replicas."""


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
    gateways: str = ""
    """Scheme and host, and the port where they share one, at which the platform itself reaches
    gateways; empty = `public_host`."""
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

    def called(self, deployment: Deployment, key: str = "") -> CallTarget:
        """Where the platform calls it; with `key` if it is protected."""
        if self.hosts is not None:
            return CallTarget(self.gateways, self.hosts(deployment)[0], key=key)
        url = f"{self.gateways or f'http://{self.public_host}'}:{deployment.port}"
        return CallTarget(url, certificate=self.tls_certificate, key=key)
