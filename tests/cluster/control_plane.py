"""The control plane of the test cluster: etcd, the API server, controllers, the scheduler, DNS."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.authority import Authority
from tests.cluster.configuration import write, write_kubeconfig
from tests.cluster.daemons import Daemons
from tests.cluster.kubectl import Kubectl
from tests.cluster.layout import (
    API_PORT,
    API_SERVICE_ADDRESS,
    DNS_ADDRESS,
    DNS_PORT,
    ETCD_PORT,
    HOST_ADDRESS,
    MOST_NODES,
    SERVICE_NETWORK,
    Layout,
    node_address,
)

PARTS = {
    "etcd": "etcd",
    "apiserver": "kube-apiserver",
    "controllers": "kube-controller-manager",
    "scheduler": "kube-scheduler",
    "dns": "coredns",
}
"""What `tests.cluster kill` calls each, and its program."""
_READY_WITHIN_S = 60.0
_COREFILE = """\
models.test:{port} {{
    bind {address}
    errors
    template IN A {{
        answer "{{{{ .Name }}}} 5 IN A {gateway}"
    }}
    template IN AAAA
}}
.:{port} {{
    bind {address}
    errors
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 5
    }}
    forward . /etc/resolv.conf
    loadbalance
}}
"""
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Processes on the host, bound to its address on the bridge."""

    layout: Layout
    daemons: Daemons

    def ensure(self) -> Iterator[str]:
        """Starts what does not run; tells what it started."""
        authority = Authority(self.layout.secrets)
        # The API server reads the tokens once: those of all nodes that there may ever be are there.
        for number in range(1, MOST_NODES + 1):
            authority.token(f"system:node:node{number}", "system:nodes")
        admin = write_kubeconfig(self.layout, self.layout.kubeconfig, "admin", "system:masters")
        for name in ("etcd", "apiserver"):
            if self.start(name):
                yield f"{name} started"
        kubectl = Kubectl(self.layout)
        kubectl.wait("get", "--raw=/readyz", timeout_s=_READY_WITHIN_S)
        for name in ("controllers", "scheduler", "dns"):
            if self.start(name):
                yield f"{name} started"
        kubectl.apply(_dns_objects())
        assert admin.exists()

    def start(self, name: str) -> bool:
        """Starts one of `PARTS` unless it runs as it is to; whether it was started."""
        argv, files = getattr(self, f"_{name}")()
        return self.daemons.ensure(
            name, [str(self.layout.binaries / PARTS[name]), *argv], files=files
        )

    def _etcd(self) -> tuple[list[str], list[Path]]:
        peers = f"http://127.0.0.1:{ETCD_PORT + 1}"
        clients = f"http://127.0.0.1:{ETCD_PORT}"
        return [
            f"--data-dir={self.layout.etcd}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
        ], []

    def _apiserver(self) -> tuple[list[str], list[Path]]:
        authority = Authority(self.layout.secrets)
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
        hosts = [*names, HOST_ADDRESS, API_SERVICE_ADDRESS, "127.0.0.1"]
        served, key = authority.issue("apiserver", hosts=hosts)
        asking, asking_key = authority.issue("kubelet-client", group="system:masters")
        policy = self.layout.secrets / "audit-policy.yaml"
        write(policy, yaml.safe_dump(_AUDIT_POLICY))
        return [
            f"--etcd-servers=http://127.0.0.1:{ETCD_PORT}",
            "--bind-address=0.0.0.0",
            f"--secure-port={API_PORT}",
            f"--advertise-address={HOST_ADDRESS}",
            f"--tls-cert-file={served}",
            f"--tls-private-key-file={key}",
            f"--client-ca-file={authority.certificate}",
            f"--kubelet-client-certificate={asking}",
            f"--kubelet-client-key={asking_key}",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={authority.account_key}",
            f"--service-account-signing-key-file={authority.account_key}",
            "--authorization-mode=Node,RBAC",
            f"--token-auth-file={authority.tokens}",
            f"--service-cluster-ip-range={SERVICE_NETWORK}",
            "--allow-privileged=true",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.layout.audit_log}",
            "--audit-log-mode=blocking",
        ], [policy, served, authority.tokens]

    def _controllers(self) -> tuple[list[str], list[Path]]:
        authority = Authority(self.layout.secrets)
        return [
            f"--kubeconfig={self.layout.kubeconfig}",
            "--leader-elect=false",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={authority.account_key}",
            f"--root-ca-file={authority.certificate}",
        ], []

    def _scheduler(self) -> tuple[list[str], list[Path]]:
        return [f"--kubeconfig={self.layout.kubeconfig}", "--leader-elect=false"], []

    def _dns(self) -> tuple[list[str], list[Path]]:
        corefile = self.layout.secrets / "Corefile"
        write(
            corefile,
            _COREFILE.format(
                port=DNS_PORT,
                address=HOST_ADDRESS,
                gateway=node_address(1),
                kubeconfig=self.layout.kubeconfig,
            ),
        )
        return [f"-conf={corefile}"], [corefile]


def _dns_objects() -> list[dict[str, Any]]:
    """The Service that pods ask, and the server on the host behind it."""
    ports = [
        {"name": f"dns-{protocol.lower()}", "port": DNS_PORT, "protocol": protocol}
        for protocol in ("UDP", "TCP")
    ]
    metadata = {"name": "kube-dns", "namespace": "kube-system"}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {
                "clusterIP": DNS_ADDRESS,
                "ports": [{**port, "port": 53, "targetPort": DNS_PORT} for port in ports],
            },
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**metadata, "labels": {"kubernetes.io/service-name": "kube-dns"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [HOST_ADDRESS], "conditions": {"ready": True}}],
            "ports": ports,
        },
    ]
