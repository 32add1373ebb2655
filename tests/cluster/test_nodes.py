"""The nodes of the test cluster are what a user's are: their pods run, and are found."""

from __future__ import annotations

import json

import pytest

from tests.cluster.echoes import PORT, Echoes, answer_of
from tests.cluster.errors import TestClusterError
from tests.cluster.fake_nodes import TAINT
from tests.cluster.installation import Installation
from tests.cluster.kubectl import Kubectl
from tests.cluster.layout import HOST_ADDRESS, node_address

pytestmark = [pytest.mark.cluster, pytest.mark.together]


@pytest.fixture
def echoes(cluster: Installation, kubectl: Kubectl, namespace: str) -> Echoes:
    """Their image is on the nodes of our own cluster alone."""
    return Echoes(kubectl, namespace)


def test_pods_are_found_by_address_by_name_and_at_each_nodes_port(echoes: Echoes) -> None:
    pods = echoes.start()
    assert [pod.node for pod in pods[:2]] == ["node1", "node2"]
    names = {pod.name for pod in pods}
    for pod in pods:
        assert answer_of(f"{pod.address}:{PORT}") == f"{pod.name} {HOST_ADDRESS}\n"
    assert answer_of(echoes.service_address()).split()[0] in names
    for number in range(1, len(pods) + 1):
        answered = answer_of(f"{node_address(number)}:{echoes.node_port()}")
        assert answered.split()[0] in names
    first, second = pods[:2]
    by_name = f"http://echo.{echoes.namespace}.svc.cluster.local/"
    assert echoes.asked_inside(first, by_name).split()[0] in names
    seen = echoes.asked_inside(first, f"http://{second.address}:{PORT}/")
    assert seen == f"{second.name} {first.address}\n", "a pod keeps its address on the way"


def test_a_node_keeps_the_logs_of_its_own_pods_where_no_other_one_removes_them(
    cluster: Installation, echoes: Echoes
) -> None:
    for pod in echoes.start():
        logs = cluster.layout.node(pod.node) / "log/pods"
        kept = [folder.name for folder in logs.glob(f"{echoes.namespace}_*")]
        assert [name.split("_")[1] for name in kept] == [pod.name]


def test_a_pod_that_asks_for_too_much_is_refused_where_it_is_restricted(
    kubectl: Kubectl, namespace: str
) -> None:
    label = "pod-security.kubernetes.io/enforce=restricted"
    kubectl("label", "namespace", namespace, label)
    container = {"name": "own", "image": "none", "securityContext": {"privileged": True}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "own", "namespace": namespace},
        "spec": {"containers": [container]},
    }
    with pytest.raises(TestClusterError, match=r'violates PodSecurity "restricted'):
        kubectl.apply([pod])


def test_each_request_stands_in_the_audit_log(
    cluster: Installation, kubectl: Kubectl, namespace: str
) -> None:
    lines = cluster.layout.audit_log.read_text().splitlines()
    ours = [json.loads(line) for line in lines if namespace in line]
    made = [line for line in ours if line["verb"] == "create"]
    assert made[0]["user"]["username"] == "admin"
    assert made[0]["objectRef"]["resource"] == "namespaces"
    assert made[0]["level"] == "Metadata"


@pytest.mark.alone
def test_fake_nodes_take_pods_without_running_them(
    cluster: Installation, kubectl: Kubectl, namespace: str
) -> None:
    nodes = len(list((cluster.layout.home / "nodes").iterdir()))
    list(cluster.up(nodes, fake_nodes=3))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "fake", "namespace": namespace},
        "spec": {
            "containers": [{"name": "none", "image": "none"}],
            "nodeSelector": {"type": "kwok"},
            "tolerations": [{"key": TAINT, "operator": "Exists"}],
        },
    }
    kubectl.wait("get", "serviceaccount", "default", f"--namespace={namespace}", timeout_s=30)
    kubectl.apply([pod])
    ready = ["--for=condition=Ready", "pod/fake", f"--namespace={namespace}", "--timeout=60s"]
    kubectl("wait", *ready)
    list(cluster.up(nodes, fake_nodes=0))
    assert "fake" not in kubectl("get", "nodes", "--output=name")


@pytest.mark.alone
def test_a_cluster_that_is_made_again_is_left_alone(cluster: Installation) -> None:
    nodes = len(list((cluster.layout.home / "nodes").iterdir()))
    list(cluster.up(nodes, fake_nodes=0))
    assert list(cluster.up(nodes, fake_nodes=0)) == []
