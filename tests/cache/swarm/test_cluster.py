"""Which chunk from whom: many planners in virtual time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotplate.cache.manifest import CHUNK_BYTES
from tests.support.cache.swarm_simulation import Cluster


def share_of(cluster: Cluster) -> float:
    cluster.run()
    return max(one.took_s for one in cluster.nodes if one.settled and one.done_at)


@pytest.mark.parametrize(("nodes", "limit"), [(1, 1.02), (2, 1.2), (8, 1.2)])
def test_agents_that_start_at_once_take_little_longer_than_one(nodes: int, limit: float) -> None:
    cluster = Cluster(10**9)
    for _ in range(nodes):
        cluster.add()
    assert share_of(cluster) <= limit * cluster.one_transfer_s
    assert cluster.origin_bytes == cluster.size_bytes


@pytest.mark.parametrize("bad", [("stalls",) * 4, ("lies", "boasts") * 2])
def test_half_of_eight_that_lie_or_stall_cost_less_than_half_a_transfer(
    bad: tuple[str, ...],
) -> None:
    cluster = Cluster(10**9)
    for kind in ("honest", *bad, "honest", "honest", "honest"):
        cluster.add(kind=kind)
    assert share_of(cluster) <= 1.5 * cluster.one_transfer_s
    assert sum(node.wrong for node in cluster.nodes) >= bad.count("lies")
    assert cluster.origin_bytes <= 1.02 * cluster.size_bytes


@settings(max_examples=15)
@given(
    st.lists(st.sampled_from(["honest", "honest", "lies", "stalls", "boasts"]), max_size=5),
    st.lists(st.floats(0.0, 2.0), min_size=6, max_size=6),
    st.integers(1, 10),
)
def test_every_chunk_arrives_and_leaves_the_origin_once_among_the_honest(
    kinds: list[str], starts_s: list[float], chunks: int
) -> None:
    cluster = Cluster(chunks * CHUNK_BYTES - 5)
    for kind, start_s in zip(["honest", *kinds], starts_s, strict=False):
        cluster.add(start_s, kind)
    cluster.run(limit_s=60.0)  # until all honest ones have all of it
    if set(kinds) <= {"honest"}:
        assert set(cluster.origin_takes.values()) == {1}
    assert set(cluster.origin_takes) == set(range(chunks))


@settings(max_examples=15)
@given(
    st.integers(0, 2**32),
    st.lists(st.floats(0.0, 2.0), min_size=2, max_size=5),
    st.integers(1, 12),
)
def test_no_chunk_leaves_the_origin_twice_however_late_and_disordered_messages_come(
    seed: int, starts_s: list[float], chunks: int
) -> None:
    rng = random.Random(seed)
    cluster = Cluster(chunks * CHUNK_BYTES, news_s=lambda: rng.choice((0.001, 0.1, 1.0, 3.0)))
    for start_s in starts_s:
        cluster.add(start_s)
    cluster.run(limit_s=200.0)
    assert set(cluster.origin_takes.values()) == {1}


def test_a_node_that_joins_late_takes_from_peers_what_they_have() -> None:
    cluster = Cluster(10**9)
    for at in (0.0, 0.3, 1.0, 4.0, 30.0):
        cluster.add(at)
    cluster.run()
    assert cluster.nodes[-1].took_s <= 1.1 * cluster.one_transfer_s
    assert cluster.origin_bytes == cluster.size_bytes


def test_a_node_that_dies_is_replaced() -> None:
    cluster = Cluster(5 * 10**8)
    for dies_at in (None, 1.0, None, 2.0, None):
        cluster.add(dies_at=dies_at)
    assert share_of(cluster) <= 1.8 * cluster.one_transfer_s
    assert sum(one.dead for one in cluster.nodes) == 2
    assert cluster.origin_bytes <= 1.2 * cluster.size_bytes
