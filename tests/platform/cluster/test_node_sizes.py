"""Instance types by the nodes that there are: each fits on one of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from hotplate.deploy.engine import Node
from hotplate.deploy.quantities import GIB
from hotplate.deploy.workload import Resources
from hotplate.platform.cluster.node_sizes import GPU_NAME, NodeSizes, selector_of
from hotplate.platform.controller.planning.instance_types import retired


def node(cpus: float, gib: float, gpus: int = 0, gpu_name: str = "") -> Node:
    labels = {GPU_NAME: gpu_name} if gpu_name else {}
    return Node(Resources(cpus, int(gib * GIB), gpus), Resources(), cpus, labels)


def sizes(*nodes: Node) -> NodeSizes:
    return NodeSizes(lambda: {str(number): each for number, each in enumerate(nodes)})


@pytest.mark.parametrize(
    "nodes",
    [
        [node(64, 64), node(8, 512)],
        [node(64, 256), node(8, 64, 2, "L4")],
        [node(16, 64, 1, "L4"), node(32, 128, 4, "A100"), node(96, 32, 1, "A100")],
        [node(2, 4)],
        [node(12, 48, 1)],
    ],
)
def test_each_fits_on_a_node_beside_what_else_is_there(nodes: list[Node]) -> None:
    for name, offered in sizes(*nodes).items():
        needs = offered.resources
        assert any(
            needs.cpus < each.in_all.cpus
            and needs.memory_bytes < each.in_all.memory_bytes
            and needs.gpus <= each.in_all.gpus
            and offered.gpu_type == (each.labels.get(GPU_NAME, "") if needs.gpus else "")
            for each in nodes
        ), name


def test_they_are_named_by_their_cpus_or_by_their_gpus_kind_and_number() -> None:
    found = sizes(node(4, 16), node(32, 128, 4, "NVIDIA-A100"), node(8, 32, 1, "NVIDIA-L4"))
    assert list(found) == [
        "cpu.1",
        "cpu.2",
        "cpu.4",
        "cpu.8",
        "cpu.16",
        "gpu.NVIDIA-A100.1",
        "gpu.NVIDIA-A100.2",
        "gpu.NVIDIA-A100.4",
        "gpu.NVIDIA-L4.1",
    ]
    assert len(found) == 9
    assert found["cpu.4"].resources == Resources(4, 8 * GIB)
    assert found["gpu.NVIDIA-A100.2"].resources == Resources(gpus=2)


def test_what_a_name_means_stays_whichever_nodes_there_are() -> None:
    small, large = node(8, 8, 1, "L4"), node(64, 512, 8, "L4")
    means = {name: each.resources for name, each in sizes(small, large).items()}
    for some in ([small], [large]):
        for name, offered in sizes(*some).items():
            assert offered.resources == means[name] == retired(name)


def test_they_follow_the_nodes() -> None:
    there: dict[str, Node] = {}
    given: Mapping[str, Node] = there
    found = NodeSizes(lambda: given)
    assert dict(found) == {} and "cpu.1" not in found
    there["node1"] = node(2, 8)
    assert list(found) == ["cpu.1"]
    there["node2"] = node(8, 16)
    assert list(found) == ["cpu.1", "cpu.2", "cpu.4"]
    there.clear()
    with pytest.raises(KeyError):
        found["cpu.1"]


def test_a_size_with_gpus_of_a_kind_runs_on_nodes_that_have_them() -> None:
    nodes = [node(32, 128, 4, "NVIDIA-A100"), node(8, 32, 2, "NVIDIA-L4.v2"), node(8, 32, 1)]
    for name, offered in sizes(*nodes).items():
        kind = offered.gpu_type
        assert selector_of(name) == ({GPU_NAME: kind} if kind else {}), name
    assert selector_of("gpu.1") == selector_of("cpu.4") == selector_of("") == {}
