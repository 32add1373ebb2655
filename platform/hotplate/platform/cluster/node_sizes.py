"""The instance types of the nodes that there are, where the operator offers none of their own.

Nodes come and go, and what a type's name means must not change with them, as replicas of another
size are other ones: what a type has, its name says. So a GPU comes with nothing beside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from hotplate.deploy.engine import Node
from hotplate.deploy.workload import Resources
from hotplate.platform.controller.planning.instance_types import retired, sizes
from hotplate.platform.instance_type import InstanceType

GPU_NAME = "nvidia.com/gpu.product"
"""The label that NVIDIA's discovery gives to nodes."""
_GPUS = "gpu."
CPUS_FREE, MEMORY_FREE = 0.9, 0.75
"""What parts of a node one replica may have: an agent is on each, and pods of the cluster's own."""


class NodeSizes(Mapping[str, InstanceType]):
    """Follows the nodes: each look is at those of now."""

    def __init__(self, nodes: Callable[[], Mapping[str, Node]]) -> None:
        self._nodes = nodes

    def __getitem__(self, name: str) -> InstanceType:
        return self._now()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())

    def _now(self) -> dict[str, InstanceType]:
        found = list(self._nodes().values())
        types = max((_cpu_types(node.in_all) for node in found), key=len, default={})
        gpus: dict[str, float] = defaultdict(float)
        for node in found:
            if node.in_all.gpus:
                kind = node.labels.get(GPU_NAME, "")
                gpus[kind] = max(gpus[kind], node.in_all.gpus)
        for kind, most in sorted(gpus.items()):
            types |= sizes(Resources(gpus=most), kind)
        return types


def selector_of(size: str) -> dict[str, str]:
    """The labels of the nodes on which a size of theirs is: `gpu.NVIDIA-L4.2` needs NVIDIA-L4s."""
    kind, _, _ = size.removeprefix(_GPUS).rpartition(".")
    return {GPU_NAME: kind} if size.startswith(_GPUS) and kind else {}


def _cpu_types(node: Resources) -> dict[str, InstanceType]:
    """Those that fit beside what else is on a node."""
    room = Resources(node.cpus * CPUS_FREE, int(node.memory_bytes * MEMORY_FREE))
    return {
        name: each
        for name, each in sizes(room).items()
        if each.resources == retired(name)  # not those that the node's memory has cut
    }
