"""Which chunk from whom: the planner alone, and many of them in virtual time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotplate.cache.chunks import Chunks
from hotplate.cache.errors import OriginUnavailable
from hotplate.cache.manifest import CHUNK_BYTES
from hotplate.cache.standing import PEER_REQUESTS, TRIAL_S, Standing
from hotplate.cache.swarm import HERE, JOIN_S, LATE_S, ORIGIN, Missed, Step, Swarm
from hotplate.cache.uploads import Uploads
from tests.cache.swarm_simulation import Cluster

ALL = (1 << 40) - 1


def swarm_of(count: int = 40, me: str = "me") -> Swarm:
    return Swarm("key", Chunks("model", count), me, Standing())


def take(swarm: Swarm, now: float = 1.0, wanted_only: bool = False, origin: bool = True) -> Step:
    step = swarm.next(now, wanted_only, origin)
    assert step is not None
    return step


def drain(swarm: Swarm, now: float = 1.0) -> list[Step]:
    """All that can be taken at once."""
    steps = []
    while (step := swarm.next(now, False, True)) is not None:
        steps.append(step)
    return steps


def test_alone_all_comes_from_the_origin_in_file_order() -> None:
    steps = drain(swarm_of(3))
    assert [(one.index, one.source) for one in steps] == [(0, ORIGIN), (1, ORIGIN), (2, ORIGIN)]
    assert steps[0].reason == "no peer has it"


def test_a_peer_that_has_it_comes_before_the_origin() -> None:
    swarm = swarm_of()
    swarm.learn("a", ALL)
    assert {one.source for one in drain(swarm)} == {"a"}


def test_one_peer_is_asked_for_a_few_chunks_at_a_time() -> None:
    swarm = swarm_of()
    swarm.learn("a", ALL)
    assert len(drain(swarm)) == PEER_REQUESTS


def test_no_chunk_is_looked_at_while_all_are_with_peers_who_were_asked_for_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    swarm = swarm_of()
    swarm.learn("a", ALL)
    drain(swarm)
    monkeypatch.setattr(swarm.chunks, "missing", lambda now: pytest.fail("looked through"))
    assert swarm.next(1.0, wanted_only=False, origin_free=True) is None


def test_what_no_peer_has_is_found_though_they_were_asked_for_enough() -> None:
    swarm = swarm_of()
    swarm.learn("a", ALL & ~0b110000)
    drain(swarm, now=1.0)
    assert {one.source for one in drain(swarm, now=2.0)} == {ORIGIN}  # one of the two is ours


def test_who_has_given_nothing_yet_is_asked_for_one_chunk_where_there_are_others() -> None:
    swarm = swarm_of()
    swarm.learn("a", ALL)
    swarm.learn("b", ALL)
    first, second = drain(swarm)
    assert {first.source, second.source} == {"a", "b"}
    swarm.came(first, 0.1, 1.0)
    assert len(drain(swarm)) == PEER_REQUESTS


def test_who_has_answered_is_asked_for_more_before_what_it_gave_is_verified() -> None:
    swarm = swarm_of()
    swarm.learn("a", ALL)
    first = drain(swarm)[0]
    swarm.answered(first, 1.0)
    assert len(drain(swarm)) == 1
    swarm.came(first, 0.1, 2.0)
    assert not drain(swarm)


def test_requests_that_peers_keep_leave_the_origins_alone() -> None:
    swarm = swarm_of()
    for peer in "abc":
        swarm.learn(peer, 0)
    swarm.next(0.0, False, True)
    step = swarm.next(JOIN_S, False, True, peers_free=False, waits_free=False)
    assert step is not None and step.source == ORIGIN


def test_what_a_reader_waits_for_comes_first() -> None:
    swarm = swarm_of()
    swarm.chunks.want([33])
    step = take(swarm, wanted_only=True)
    assert step.index == 33 and step.urgent


def test_each_chunk_has_one_owner_whom_all_others_ask() -> None:
    names = [f"n{number}" for number in range(5)]
    sources: dict[int, list[str]] = {}
    for me in names:
        swarm = swarm_of(10, me)
        for peer in names:
            if peer != me:
                swarm.learn(peer, 0)
        swarm.next(0.0, False, True)
        for step in drain(swarm, JOIN_S + 1):
            sources.setdefault(step.index, []).append(step.source)
    owned = [found.count(ORIGIN) for found in sources.values()]
    assert max(owned) == 1 and sum(owned) >= 4


def test_the_origin_is_not_asked_before_the_peers_were() -> None:
    swarm = swarm_of()
    swarm.settled = False
    assert swarm.next(1.0, False, True) is None
    swarm.settled = True
    assert take(swarm).source == ORIGIN


def test_after_somebody_joined_the_origin_waits_for_news() -> None:
    swarm = swarm_of()
    swarm.learn("a", 0)
    swarm.next(1.0, False, True)
    assert ORIGIN not in {one.source for one in drain(swarm, 1.0 + JOIN_S / 2)}
    assert swarm.wakes_at(1.0) == 1.0 + JOIN_S
    assert ORIGIN in {one.source for one in drain(swarm, 1.0 + JOIN_S)}


def test_a_chunk_that_a_peer_takes_from_the_origin_is_left_to_it() -> None:
    swarm = swarm_of(1, "me")
    peer = next(name for name in "abcdef" if owns(name))
    swarm.learn(peer, 0, claims=1)
    assert take(swarm).source == peer


def owns(peer: str) -> bool:
    """Whether "me" comes before that peer in the order of chunk 0."""
    swarm = swarm_of(1)
    swarm.learn(peer, 0)
    swarm.next(0.0, False, True)
    return take(swarm).source == ORIGIN


def test_who_stalls_is_left_for_a_while_and_its_chunks_go_elsewhere() -> None:
    swarm = swarm_of()
    swarm.learn("a", ALL)
    step = take(swarm)
    assert swarm.missed(step, Missed.LEFT, 2.0) is None
    assert take(swarm, 2.1).source == ORIGIN
    assert take(swarm, 60.0).source == "a"


def test_who_gave_wrong_bytes_is_not_asked_again() -> None:
    swarm = swarm_of()
    swarm.learn("a", ALL)
    swarm.missed(take(swarm), Missed.LIED, 2.0)
    swarm.learn("a", ALL)
    assert {one.source for one in drain(swarm, 1000.0)} == {ORIGIN}


def test_what_only_a_silent_stranger_says_to_have_comes_from_the_origin() -> None:
    swarm = swarm_of()
    swarm.learn("a", ALL)
    assert {one.source for one in drain(swarm, 1.0)} == {"a"}
    assert swarm.next(1.0 + TRIAL_S / 2, False, True) is None
    assert take(swarm, 1.0 + TRIAL_S).source == ORIGIN  # what this node owns, and nothing else


def test_who_is_busy_is_asked_again_when_it_said() -> None:
    swarm = swarm_of()
    swarm.learn("a", ALL)
    swarm.missed(take(swarm), Missed.BUSY, 2.0, retry_s=0.5)
    assert swarm.next(2.4, False, False) is None
    assert swarm.wakes_at(2.4) == 2.5
    assert take(swarm, 2.5).source == "a"


def test_who_only_promises_is_passed_over_in_the_end() -> None:
    swarm = swarm_of(1)
    swarm.chunks.want([0])
    swarm.learn("a", 0, claims=1)
    now = 1.0
    while (step := take(swarm, now)).source == "a":
        assert now <= 2.0 + LATE_S
        now += 1.0
        swarm.missed(step, Missed.NOT_YET, now)
    assert step.source == ORIGIN and now >= LATE_S


def test_who_cannot_have_it_from_the_origin_is_passed_over_at_once() -> None:
    swarm = swarm_of(1)
    swarm.learn("a", 0, claims=1)
    step = take(swarm)
    assert step.source == "a"
    swarm.missed(step, Missed.CANNOT, 1.0 + JOIN_S)
    assert take(swarm, 1.0 + JOIN_S).source == ORIGIN


def test_a_pause_after_a_failure_ends_when_a_peer_gets_the_chunk() -> None:
    swarm = swarm_of(1)
    assert swarm.failed(take(swarm), OriginUnavailable("down"), 1.0) is None
    assert swarm.next(1.0, False, True) is None
    swarm.learn("a", 1)
    assert take(swarm).source == "a"


def test_nothing_for_thirty_seconds_is_the_end_though_peers_promise() -> None:
    swarm = swarm_of(1)
    swarm.chunks.want([0])
    swarm.learn("a", 0, claims=1)
    now, error = 1.0, None
    while error is None:
        step = take(swarm, now)
        now += 1.0
        missed = step.source != ORIGIN
        down = OriginUnavailable("down")
        error = swarm.missed(step, Missed.NOT_YET, now) if missed else swarm.failed(step, down, now)
        now = max(now, swarm.wakes_at(now) or now)
    assert isinstance(error, OriginUnavailable) and 30.0 <= now <= 35.0


def test_a_copy_on_disk_comes_before_all_and_its_damage_goes_to_others() -> None:
    swarm = swarm_of(2)
    swarm.local = True
    swarm.settled = False
    step = take(swarm)
    assert step.source == HERE
    swarm.damaged(step)
    assert take(swarm).source == HERE  # the other chunk
    assert swarm.next(1.0, False, True) is None
    swarm.settled = True
    assert take(swarm).source == ORIGIN


def test_behind_the_head_the_rarest_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hotplate.cache.swarm.HEAD", 0)
    swarm = swarm_of(5)
    swarm.learn("a", 0b11110)
    swarm.learn("b", 0b01110)
    swarm.learn("c", 0b00110)
    swarm.learn("d", 0b00110)
    assert [one.index for one in drain(swarm, 2.0)] == [4, 3, 1, 2]


def test_upload_slots_are_few_and_say_when_to_come_back() -> None:
    uploads = Uploads(2)
    assert uploads.begin() is None and uploads.begin() is None
    retry_s = uploads.begin()
    assert retry_s is not None and 0 < retry_s <= 1
    uploads.end(0.5)
    assert uploads.begin() is None


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 50))
def test_no_chunk_is_lost_or_taken_twice_whatever_peers_do(
    seed: int, peers: int, count: int
) -> None:
    rng = random.Random(seed)
    swarm = swarm_of(count)
    names = [f"n{number}" for number in range(peers)]
    now, under_way, banned = 0.0, list[Step](), set[str]()
    for _ in range(40 * count + 200):
        now += rng.random()
        if rng.random() < 0.2:
            swarm.learn(rng.choice(names), rng.getrandbits(count), rng.getrandbits(count))
        if rng.random() < 0.05:
            swarm.forget(rng.choice(names))
        if rng.random() < 0.1:
            swarm.chunks.want([rng.randrange(count)])
        step = swarm.next(now, rng.random() < 0.3, rng.random() < 0.9)
        if step is not None:
            assert step.index not in {one.index for one in under_way}
            assert not swarm.chunks.verified_bits >> step.index & 1
            assert step.source not in banned
            under_way.append(step)
            assert sum(one.source == step.source != ORIGIN for one in under_way) <= PEER_REQUESTS
        if under_way and rng.random() < 0.7:
            step = under_way.pop(rng.randrange(len(under_way)))
            if rng.random() < 0.5:
                swarm.came(step, 0.1, now)
            elif step.source == ORIGIN:
                swarm.failed(step, OriginUnavailable("down"), now)
            else:
                why = rng.choice(list(Missed))
                banned |= {step.source} if why is Missed.LIED else set()
                swarm.missed(step, why, now, 0.1)
        assert bool(swarm.claims) == any(one.source == ORIGIN for one in under_way)
    for step in under_way:
        swarm.came(step, 0.1, now)
    for _ in range(100 * count):
        now += 2.0
        if (last := swarm.next(now, False, True)) is not None:
            swarm.came(last, 0.1, now)
    assert swarm.chunks.complete


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


@settings(max_examples=15, deadline=None)
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


def test_who_joins_late_takes_from_peers_what_they_have() -> None:
    cluster = Cluster(10**9)
    for at in (0.0, 0.3, 1.0, 4.0, 30.0):
        cluster.add(at)
    cluster.run()
    assert cluster.nodes[-1].took_s <= 1.1 * cluster.one_transfer_s
    assert cluster.origin_bytes == cluster.size_bytes


def test_who_dies_is_replaced() -> None:
    cluster = Cluster(5 * 10**8)
    for dies_at in (None, 1.0, None, 2.0, None):
        cluster.add(dies_at=dies_at)
    assert share_of(cluster) <= 1.8 * cluster.one_transfer_s
    assert sum(one.dead for one in cluster.nodes) == 2
    assert cluster.origin_bytes <= 1.2 * cluster.size_bytes
