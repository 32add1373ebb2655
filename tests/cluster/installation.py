"""The whole test cluster: made, made again, and taken down."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.cluster import binaries
from tests.cluster.control_plane import PARTS, ControlPlane
from tests.cluster.daemons import Daemons
from tests.cluster.errors import TestClusterError
from tests.cluster.fake_nodes import FakeNodes
from tests.cluster.images import ours
from tests.cluster.images.oci import Archive
from tests.cluster.images.small import SMALL_IMAGES, ensure_small
from tests.cluster.kubectl import Kubectl
from tests.cluster.lan import Lan
from tests.cluster.layout import MOST_NODES, PROXY_ADDRESS, Layout
from tests.cluster.node import Node, start_proxy
from tests.cluster.stand_ins import StandIns

_READY_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Installation:
    """One cluster below one folder."""

    layout: Layout

    def up(self, nodes: int, fake_nodes: int) -> Iterator[str]:
        """Makes what is missing and changes what has changed; tells each step.

        TestClusterError with the words of what did not start.
        """
        if not 1 <= nodes <= MOST_NODES:
            raise TestClusterError(f"a cluster has 1 to {MOST_NODES} nodes, not {nodes}")
        self.layout.home.mkdir(parents=True, exist_ok=True)
        yield from binaries.link(self.layout)
        lan = Lan(self.daemons)
        lan.ensure_bridge()
        yield from ControlPlane(self.layout, self.daemons).ensure()
        yield from ours.ensure(self.layout)
        small = [ensure_small(self.layout, program) for program in SMALL_IMAGES]
        images = [*small, *ours.archives(self.layout)]
        machines = {}
        with ThreadPoolExecutor() as side_by_side:
            for steps in side_by_side.map(partial(_made, images), self._nodes(nodes)):
                yield from steps
        for node in self._nodes(nodes):
            machines[node.name] = lan.ensure_machine(node.name, "")
        machines["proxy"] = lan.ensure_machine("proxy", PROXY_ADDRESS)
        if start_proxy(self.layout, self.daemons, "proxy-proxy", "node1", machines["proxy"]):
            yield "proxy started"
        lan.route_pods(list(range(1, nodes + 1)), machines)
        yield from FakeNodes(self.layout, self.daemons).ensure(fake_nodes)
        yield from self._leave_out(nodes)
        kubectl = Kubectl(self.layout)
        for node in self._nodes(nodes):
            kubectl.wait("get", "node", node.name, timeout_s=_READY_WITHIN_S)
        kubectl(
            "wait", "--for=condition=Ready", "nodes", "--all", f"--timeout={_READY_WITHIN_S:.0f}s"
        )

    def down(self) -> None:
        """Ends all, and leaves no process, mount, link or control group; what was built stays."""
        for number in range(1, MOST_NODES + 1):
            Node(number, self.layout, self.daemons).remove()
        StandIns(self.daemons).remove()
        for name in self.daemons.names():
            self.daemons.end(name, signal.SIGKILL)
        Lan(self.daemons).remove()
        for folder in (
            "etcd",
            "daemons",
            "log",
            "nodes",
            "proxies",
            "secrets",
            "kubeconfig",
            "audit.log",
        ):
            place = self.layout.home / folder
            shutil.rmtree(place, ignore_errors=True) if place.is_dir() else place.unlink(
                missing_ok=True
            )
        for place in (Path("/var/lib/kubelet"), Path("/var/lib/hotplate")):
            with contextlib.suppress(OSError):
                place.rmdir()

    def kill(self, name: str) -> None:
        """Kills a node or a part of the control plane, by SIGKILL."""
        node = self._node(name)
        node.kill() if node else self.daemons.end(name, signal.SIGKILL)

    def start(self, name: str) -> None:
        """Starts what was killed."""
        node = self._node(name)
        if node is None:
            ControlPlane(self.layout, self.daemons).start(name)
        else:
            list(node.ensure())

    def stop(self, name: str) -> None:
        """Stops it, by SIGSTOP."""
        self._signal(name, signal.SIGSTOP)

    def cont(self, name: str) -> None:
        """Lets what was stopped go on."""
        self._signal(name, signal.SIGCONT)

    def cut(self, name: str) -> None:
        """Takes a node's link down."""
        self._lan_of(name).cut(name)

    def mend(self, name: str) -> None:
        """Takes a node's link up."""
        self._lan_of(name).mend(name)

    @property
    def daemons(self) -> Daemons:
        """All that runs for it."""
        return Daemons(self.layout)

    def _nodes(self, count: int) -> list[Node]:
        return [Node(number, self.layout, self.daemons) for number in range(1, count + 1)]

    def _node(self, name: str) -> Node | None:
        """The node of this name, None for a part of the control plane, TestClusterError else."""
        if name in PARTS:
            return None
        for node in self._nodes(MOST_NODES):
            if node.name == name and node.disk.exists():
                return node
        known = [node.name for node in self._nodes(MOST_NODES) if node.disk.exists()]
        raise TestClusterError(f"there is no '{name}'; there are {', '.join([*known, *PARTS])}")

    def _signal(self, name: str, number: signal.Signals) -> None:
        node = self._node(name)
        node.tell(number) if node else self.daemons.tell(name, number)

    def _lan_of(self, name: str) -> Lan:
        if self._node(name) is None:
            raise TestClusterError(f"{name} has no link of its own; cut a node")
        return Lan(self.daemons)

    def _leave_out(self, nodes: int) -> Iterator[str]:
        """Removes the nodes that a larger cluster had."""
        for node in self._nodes(MOST_NODES)[nodes:]:
            if node.disk.exists():
                node.remove()
                Kubectl(self.layout)("delete", "node", node.name, "--ignore-not-found")
                yield f"{node.name} removed"


def _made(images: Sequence[Archive], node: Node) -> list[str]:
    """The steps by which a node runs and has the images."""
    steps = list(node.ensure())
    return [*steps, *(f"{node.name} has {each.place.stem}" for each in images if node.load(each))]
