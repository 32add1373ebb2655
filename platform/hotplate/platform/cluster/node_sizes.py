"""The instance types of the nodes that there are, where the operator offers none of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from hotplate.deploy.engine import Node
from hotplate.deploy.workload import Resources
from hotplate.platform.controller.planning.instance_types import sizes
from hotplate.platform.instance_type import InstanceType

GPU_NAME = "nvidia.com/gpu.product"
"""The label that NVIDIA's discovery gives to nodes."""


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
        names = sorted(filter(None, (node.labels.get(GPU_NAME, "") for node in found)))
        return sizes(largest(found), names[0] if names else "")


def largest(nodes: list[Node]) -> Resources:
    """The largest amount of each resource that any of them has."""
    return Resources(
        max((node.in_all.cpus for node in nodes), default=0.0),
        max((node.in_all.memory_bytes for node in nodes), default=0),
        max((node.in_all.gpus for node in nodes), default=0.0),
    )
