"""A cluster of agents in virtual time: the real planner, over links of a given speed.

Every node has a link of `link` bytes per second up and as much down, and so has the origin.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.support.cache.simulated_nodes import DELAY_S, SimNode, World

LINK = 125e6


class Cluster(World):
    """Nodes that bring one content of `size_bytes` each."""

    def __init__(
        self, size_bytes: int, link: float = LINK, news_s: Callable[[], float] = lambda: DELAY_S
    ) -> None:
        super().__init__(size_bytes, link, news_s)
        self.one_transfer_s = size_bytes / link

    def add(self, at: float = 0.0, kind: str = "honest", dies_at: float | None = None) -> SimNode:
        """`kind`: honest, lies (wrong bytes), stalls (never answers) or boasts (stalls, and claims
        to have all)."""
        node = SimNode(self, f"node-{len(self.nodes):02}", kind)
        self.nodes.append(node)
        self.time.at(at, node.join)
        if dies_at is not None:
            self.time.at(dies_at, node.die)
        return node

    def run(self, limit_s: float = 1000.0) -> None:
        """Until every honest node that lives has everything."""
        while not all(one.settled for one in self.nodes) and self.time.step():
            assert self.time.now < limit_s, f"not done after {limit_s} s"
