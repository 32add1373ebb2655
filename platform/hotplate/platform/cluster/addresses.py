"""How deployments, and services of one deployment, are called on a cluster; pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from hotplate.deploy.cluster.names import bases, tenant_namespace
from hotplate.deploy.workload import WorkloadKey
from hotplate.machine.access.own_hosts import host_of
from hotplate.platform.controller.planning.addresses import Addresses
from hotplate.platform.spec.deployment_host import STAR, deployment_host
from hotplate.platform.store.records import Deployment


@dataclass(frozen=True)
class ServiceNames:
    """Where the services of one bento reach each other, as `InnerAddresses`: by the names of
    Services that lead to the gateways."""

    release: str
    need_ports: bool = False

    def of(self, key: WorkloadKey, services: Collection[str], port: int) -> str:
        base = bases([replace(key, service=each) for each in {*services, key.service}])[key]
        return f"{base}-calls.{tenant_namespace(self.release, key.organization)}.svc"


def cluster_addresses(url: str, release: str) -> Addresses:
    """`url` has a star for a deployment's name."""
    host = host_of(urlsplit(url.replace(STAR, "x", 1)).netloc).removeprefix("x")

    def hosts(deployment: Deployment) -> list[str]:
        return [deployment_host(deployment.name, deployment.organization.name) + host]

    def found(keys: Collection[WorkloadKey]) -> Mapping[WorkloadKey, str]:
        return {
            key: f"{tenant_namespace(release, key.organization)}/{base}"
            for key, base in bases(keys).items()
        }

    gateways = f"http://hotplate-gateway.{release}.svc"
    return Addresses("", hosts=hosts, gateways=gateways, found=found)
