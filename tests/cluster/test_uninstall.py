"""What is left of a release that is uninstalled, and that it can be installed anew."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cluster.client import Client
from tests.cluster.installation import Installation
from tests.cluster.kubectl import Kubectl
from tests.cluster.release import Release

pytestmark = pytest.mark.cluster
HALF_OF_GRACE_S = 37.5
"""Of a pod that may take a minute for a request: so late Kubernetes looks again at a namespace that
it is told to remove while pods of it end. Requests that have ended are not waited for."""
LABEL = "--selector=app.kubernetes.io/part-of=hotplate"
KINDS = (
    "namespaces,clusterroles,clusterrolebindings,csidrivers,validatingadmissionpolicies,"
    "validatingadmissionpolicybindings,deployments,daemonsets,jobs,pods,services,endpointslices,"
    "secrets,configmaps,serviceaccounts,roles,rolebindings,persistentvolumeclaims,"
    "poddisruptionbudgets"
)


def test_uninstalled_it_leaves_nothing_and_is_installed_anew(
    cluster: Installation,
    kubectl: Kubectl,
    installed: Release,
    client: Client,
    is_ours: bool,
    hello: str,
) -> None:
    """A deployment runs meanwhile, whose pods have mounts on nodes, and a secret is kept: the
    next release cannot read what that was encrypted with."""
    if not is_ours:
        pytest.skip("others have deployments there")
    client("secret", "create", "kept", "WORD=w")
    assert mounts(cluster) != []
    began = time.monotonic()
    installed.uninstall()
    assert time.monotonic() - began < HALF_OF_GRACE_S
    assert mounts(cluster) == []
    assert labelled(kubectl) == []
    list(installed.install())


def labelled(kubectl: Kubectl) -> list[str]:
    """What carries our labels, but for what other tests have left to end by itself."""
    columns = "custom-columns=:metadata.namespace,:kind,:metadata.name"
    said = kubectl("get", KINDS, "--all-namespaces", LABEL, f"--output={columns}", "--no-headers")
    return [line for line in said.splitlines() if "test-" not in line]


def mounts(cluster: Installation) -> list[str]:
    """What agents have mounted on nodes."""
    found = []
    for number in (1, 2):
        machine = cluster.daemons.find(f"node{number}-machine")
        assert machine is not None
        for line in Path(f"/proc/{machine.pid}/mounts").read_text().splitlines():
            _, place, *_ = line.split()
            if place.startswith(("/var/lib/hotplate/", "/var/lib/kubelet/pods/")):
                found.append(place)
    return [place for place in found if "kubernetes.io~csi" in place or "hotplate/" in place]
