"""Nodes without anything behind them, by the hundred: KWOK says what their kubelets would."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.cluster.binaries import module_folder
from tests.cluster.configuration import write
from tests.cluster.daemons import Daemons
from tests.cluster.kubectl import Kubectl
from tests.cluster.layout import Layout

LABEL = "type=kwok"
TAINT = "hotplate.test/fake"
_MODULE = "sigs.k8s.io/kwok@v0.8.0"
_STAGES = ("node/fast", "node/heartbeat-with-lease", "pod/fast")
_DAEMON = "kwok"


@dataclass(frozen=True, slots=True)
class FakeNodes:
    """fake1, fake2, … of one cluster."""

    layout: Layout
    daemons: Daemons

    def ensure(self, count: int) -> Iterator[str]:
        """Makes as many as there are to be, and removes the others; tells what it did."""
        kubectl = Kubectl(self.layout)
        listed = kubectl("get", "nodes", f"--selector={LABEL}", "--output=name").split()
        there = {name.removeprefix("node/") for name in listed}
        wanted = {f"fake{number}" for number in range(1, count + 1)}
        if gone := sorted(there - wanted):
            kubectl("delete", "node", "--wait=false", *gone)
            yield f"{len(gone)} fake nodes removed"
        if new := sorted(wanted - there):
            kubectl.apply([_node(name) for name in new])
            yield f"{len(new)} fake nodes made"
        if not wanted:
            self.daemons.end(_DAEMON)
        elif self._start():
            yield f"{_DAEMON} started"

    def _start(self) -> bool:
        stages = self.layout.secrets / "stages.yaml"
        files = [
            file
            for stage in _STAGES
            for file in sorted((module_folder(_MODULE) / "kustomize/stage" / stage).glob("*.yaml"))
            if file.name != "kustomization.yaml"
        ]
        write(stages, "\n---\n".join(file.read_text() for file in files))
        argv = [
            str(self.layout.binaries / "kwok"),
            f"--kubeconfig={self.layout.kubeconfig}",
            f"--config={stages}",
            f"--manage-nodes-with-label-selector={LABEL}",
            "--manage-all-nodes=false",
            "--node-lease-duration-seconds=40",
        ]
        return self.daemons.ensure(_DAEMON, argv, files=[stages])


def _node(name: str) -> dict[str, Any]:
    label, value = LABEL.split("=")
    size = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {label: value, "kubernetes.io/hostname": name},
            "annotations": {"node.alpha.kubernetes.io/ttl": "0", "kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": [{"key": TAINT, "effect": "NoSchedule"}]},
        "status": {"capacity": size, "allocatable": size},
    }
