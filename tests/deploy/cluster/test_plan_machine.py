"""Whatever is wanted, whoever deletes what, and wherever an engine dies between two writes: what is
wanted comes about, nothing else stays, and no workload has more pods than was said."""

from __future__ import annotations

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hotplate.deploy.cluster import names
from hotplate.deploy.cluster.kinds import Ref
from hotplate.deploy.workload import Workload
from tests.support.deploy.cluster import ClusterInMemory, workload

WORKLOADS = [
    workload("a", "One", 1),
    workload("a", "Two", 1),
    workload("a", "One", 2),
    workload("b", "One", 1),
    workload("a", "One", 1, organization="rival"),
]


class Cluster(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = ClusterInMemory()
        self.wanted: dict[int, int] = {}
        self.most: dict[int, int] = {}
        """The largest number that was said of each since it had that many pods at most."""

    @rule(which=st.integers(0, len(WORKLOADS) - 1), count=st.integers(0, 3))
    def want(self, which: int, count: int) -> None:
        self.wanted[which] = count
        self.most[which] = max(count, self.most.get(which, 0))

    @rule(which=st.integers(0, len(WORKLOADS) - 1))
    def no_longer_want(self, which: int) -> None:
        self.wanted.pop(which, None)

    @rule(writes=st.integers(1, 6), all_named=st.booleans())
    def look_and_die(self, writes: int, all_named: bool) -> None:
        for write in self.cluster.look(*self._each(), all_named=all_named)[:writes]:
            if write.ref in self.cluster.objects or not hasattr(write, "uid"):
                self.cluster.make(write)

    @rule(data=st.data())
    def somebody_deletes(self, data: st.DataObject) -> None:
        if self.cluster.objects:
            self.cluster.delete(data.draw(st.sampled_from(sorted(self.cluster.objects))))
            self.cluster.follow()

    @rule()
    def all_is_written(self) -> None:
        self.cluster.settle(*self._each())
        assert self.cluster.look(*self._each()) == []
        self.most = dict(self.wanted)
        for which, given in enumerate(WORKLOADS):
            assert len(self._pods(which)) == self.wanted.get(which, 0), given.key
        objects = self.cluster.objects.values()
        found = {each["metadata"]["labels"][names.DEPLOYMENT] for each in objects}
        assert found == {WORKLOADS[which].key.deployment for which in self.wanted}

    @invariant()
    def no_more_pods_than_was_said(self) -> None:
        for which in range(len(WORKLOADS)):
            assert len(self._pods(which)) <= self.most.get(which, 0)

    def _each(self) -> list[tuple[Workload, int]]:
        return [(WORKLOADS[which], count) for which, count in self.wanted.items()]

    def _pods(self, which: int) -> list[Ref]:
        told = {names.WORKLOAD: str(WORKLOADS[which].key)}
        return [
            ref
            for ref, each in self.cluster.objects.items()
            if ref.kind == "Pod" and told.items() <= each["metadata"]["annotations"].items()
        ]


TestCluster = Cluster.TestCase
TestCluster.settings = settings(
    max_examples=100, stateful_step_count=12, deadline=None, phases=[Phase.generate]
)
