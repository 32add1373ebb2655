"""The faults that the test cluster makes are real, and end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.cluster.echoes import PORT, Echoes, answer_of
from tests.cluster.errors import TestClusterError
from tests.cluster.installation import Installation
from tests.cluster.kubectl import Kubectl
from tests.cluster.node import Node

pytestmark = pytest.mark.cluster
NODE = "node2"


@pytest.fixture
def echoes(cluster: Installation, kubectl: Kubectl, namespace: str) -> Iterator[Echoes]:
    """Whatever a test leaves killed, stopped or cut is as it was afterwards."""
    yield Echoes(kubectl, namespace)
    cluster.mend(NODE)
    for name in (NODE, "apiserver"):
        with contextlib.suppress(TestClusterError):
            cluster.cont(name)
        cluster.start(name)
    kubectl.wait("get", "--raw=/readyz", timeout_s=60)


def answers(address: str) -> bool:
    with contextlib.suppress(OSError):
        return bool(answer_of(f"{address}:{PORT}"))
    return False


def test_a_killed_node_loses_its_pods_and_has_them_again(
    cluster: Installation, echoes: Echoes
) -> None:
    lost = echoes.start()[1]
    node = Node(2, cluster.layout, cluster.daemons)
    before = set(node.group.pids())
    assert lost.node == NODE and before
    cluster.kill(NODE)
    assert not set(node.group.pids()) & before
    assert not answers(lost.address)
    cluster.start(NODE)
    jsonpath = "--output=jsonpath={.status.containerStatuses[0].restartCount}"
    pod = ["get", "pod", lost.name, f"--namespace={echoes.namespace}"]
    restarted = "--for=jsonpath={.status.containerStatuses[0].restartCount}=1"
    echoes.kubectl("wait", restarted, *pod[1:], "--timeout=60s")
    echoes.await_ready()
    assert echoes.kubectl(*pod, jsonpath) == "1"
    assert answers(echoes.pods()[1].address)


def test_a_node_that_is_cut_cannot_be_reached_until_it_is_mended(
    cluster: Installation, echoes: Echoes
) -> None:
    there, cut = echoes.start()[:2]
    cluster.cut(NODE)
    assert answers(there.address) and not answers(cut.address)
    cluster.mend(NODE)
    assert answers(cut.address)


def test_a_node_that_is_stopped_answers_nothing_until_it_goes_on(
    cluster: Installation, echoes: Echoes
) -> None:
    there, stopped = echoes.start()[:2]
    cluster.stop(NODE)
    assert answers(there.address) and not answers(stopped.address)
    cluster.cont(NODE)
    assert answers(stopped.address)


def test_pods_do_without_an_api_server(cluster: Installation, echoes: Echoes) -> None:
    pod = echoes.start()[0]
    cluster.kill("apiserver")
    with pytest.raises(TestClusterError, match="refused"):
        echoes.pods()
    assert answers(pod.address)
    cluster.start("apiserver")
    echoes.kubectl.wait("get", "--raw=/readyz", timeout_s=60)
    assert echoes.pods()[0] == pod


@pytest.mark.parametrize("fault", ["kill", "start", "stop", "cont", "cut", "mend"])
def test_what_does_not_exist_is_named_with_what_does(cluster: Installation, fault: str) -> None:
    with pytest.raises(TestClusterError, match=r"^there is no 'node9'; there are node1, node2, "):
        getattr(cluster, fault)("node9")
