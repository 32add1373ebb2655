"""What the accounts of the release may, beyond what every account may."""

from __future__ import annotations

import pytest

from tests.cluster.errors import TestClusterError
from tests.cluster.helm import RELEASE
from tests.cluster.kubectl import Kubectl
from tests.cluster.release import Release

pytestmark = [pytest.mark.cluster, pytest.mark.together]
AGENTS, BUILDS = f"{RELEASE}-agents", f"{RELEASE}-builds"
CONTROL_PLANE = f"--as=system:serviceaccount:{RELEASE}:hotplate-control-plane"
REFUSED = f"changes namespaces that begin with {RELEASE}-t-"


@pytest.mark.parametrize(
    ("namespace", "account"), [(AGENTS, "hotplate-agent"), (BUILDS, "default")]
)
def test_agents_and_builds_have_none(
    installed: Release, kubectl: Kubectl, namespace: str, account: str
) -> None:
    assert rights(kubectl, namespace, account, namespace) == of_everybody(kubectl)


def test_gateways_see_where_replicas_are(installed: Release, kubectl: Kubectl) -> None:
    gateway = rights(kubectl, RELEASE, "hotplate-gateway", RELEASE) - of_everybody(kubectl)
    assert gateway == {"endpointslices.discovery.k8s.io [get list watch]"}


def test_the_control_plane_makes_namespaces_of_organizations_and_no_others(
    installed: Release, kubectl: Kubectl
) -> None:
    control_plane = rights(kubectl, RELEASE, "hotplate-control-plane", "kube-system")
    assert control_plane - of_everybody(kubectl) == {
        "nodes [get list watch]",
        "namespaces [get create patch delete]",
        "rolebindings.rbac.authorization.k8s.io [get create patch]",
        "clusterroles.rbac.authorization.k8s.io [bind]",
    }
    kubectl("create", "namespace", f"{RELEASE}-t-anybody", "--dry-run=server", CONTROL_PLANE)
    with pytest.raises(TestClusterError, match=REFUSED):
        kubectl("create", "namespace", "another", "--dry-run=server", CONTROL_PLANE)
    with pytest.raises(TestClusterError, match=REFUSED):
        role = f"--clusterrole={RELEASE}-tenant"
        binding = ["rolebinding", "own", role, "--user=own", "--namespace=kube-system"]
        kubectl("create", *binding, "--dry-run=server", CONTROL_PLANE)


def of_everybody(kubectl: Kubectl) -> set[str]:
    return rights(kubectl, RELEASE, "default", RELEASE)


def rights(kubectl: Kubectl, namespace: str, account: str, where: str) -> set[str]:
    user = f"--as=system:serviceaccount:{namespace}:{account}"
    groups = [
        "system:serviceaccounts",
        f"system:serviceaccounts:{namespace}",
        "system:authenticated",
    ]
    asking = [user, *(f"--as-group={group}" for group in groups)]
    listed = kubectl("auth", "can-i", "--list", "--no-headers", f"--namespace={where}", *asking)
    found = set()
    for line in listed.splitlines():
        name, verbs = line.split(maxsplit=1)[0], line[line.rindex("[") :]
        found.add(f"{name} {verbs}")
    return found
