"""A control plane with SQLite on a volume, and tokens of the installer's; beside any release."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.client import Client
from tests.cluster.helm import Helm
from tests.cluster.installation import Installation
from tests.cluster.kubectl import Kubectl
from tests.cluster.stand_ins import STORE_VARIABLES, StandIns

pytestmark = [pytest.mark.cluster, pytest.mark.together]
TOKENS = {"admin-token": "an-admin's-of-the-installer", "cluster-token": "a-cluster's-of-the-same"}
NODE = "node1"
PART = "deployment/hotplate-control-plane"


@pytest.fixture
def volume(cluster: Installation, kubectl: Kubectl, namespace: str) -> Iterator[str]:
    """A folder of a node, as a volume of a class of its own."""
    machine = cluster.daemons.find(f"{NODE}-machine")
    assert machine is not None
    place = Path("/var/lib/hotplate") / namespace
    Path(f"/proc/{machine.pid}/root{place}").mkdir()
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": namespace,
        "local": {"path": str(place)},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
    }
    kind = {"apiVersion": "v1", "kind": "PersistentVolume"}
    kubectl.apply([{**kind, "metadata": {"name": namespace}, "spec": spec}])
    yield namespace
    kubectl("delete", "persistentvolume", namespace, "--wait=false")


@pytest.fixture
def release(
    cluster: Installation,
    helm: Helm,
    kubectl: Kubectl,
    namespace: str,
    volume: str,
    tmp_path: Path,
) -> Iterator[str]:
    """All of a release but what is on nodes, of which there is one in a cluster."""
    list(StandIns(cluster.daemons).ensure())
    values: dict[str, Any] = {
        "database": {"secretName": ""},
        "tokens": {"existingSecret": "own"},
        "blobs": {"url": f"s3://hotplate/{namespace}"},
        "controlPlane": {
            "service": {"type": "ClusterIP", "nodePort": None},
            "volume": {"size": "1Gi", "storageClassName": volume},
        },
        "gateway": {"replicas": 1, "service": {"type": "ClusterIP", "nodePort": None}},
    }
    rendered = helm.rendered(namespace, values, tmp_path)
    kept = [each for each in rendered if not of_nodes_or_hooks(each)]
    kept.sort(key=lambda each: each["kind"] != "Namespace")
    secrets = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace},
            "stringData": data,
        }
        for name, data in (("own", TOKENS), ("store", STORE_VARIABLES))
    ]
    kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    kubectl.apply([*secrets, *kept])
    yield namespace
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": kept})
    kubectl("delete", "--wait=false", "--filename=-", given=given)


def of_nodes_or_hooks(manifest: dict[str, Any]) -> bool:
    hook = "helm.sh/hook" in manifest["metadata"].get("annotations", {})
    return hook or manifest["kind"] in ("CSIDriver", "DaemonSet")


def test_what_it_knows_outlives_its_pod(kubectl: Kubectl, release: str, tmp_path: Path) -> None:
    where = f"--namespace={release}"
    kubectl("rollout", "status", PART, where, "--timeout=90s")
    said = kubectl("get", "service", "hotplate-control-plane", where, "--output=json")
    endpoint = f"http://{json.loads(said)['spec']['clusterIP']}:7070"
    client = Client(tmp_path / "laptop")
    client("cloud", "login", "--api-token", TOKENS["admin-token"], "--endpoint", endpoint)
    client("secret", "create", "kept", "KEY=value")
    kubectl("delete", "pods", "--selector=app.kubernetes.io/name=hotplate-control-plane", where)
    kubectl("rollout", "status", PART, where, "--timeout=90s")
    assert "kept" in client("secret", "list")
    kubectl("rollout", "status", "deployment/hotplate-gateway", where, "--timeout=30s")
