"""Which chunk from whom: the planner alone (many of them: test_swarm_cluster.py)."""

from __future__ import annotations

import random
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotplate.cache.errors import OriginUnavailable
from hotplate.cache.swarm.assignment import HERE, ORIGIN, Assignment, Missed
from hotplate.cache.swarm.chunk_picker import ChunkPicker
from hotplate.cache.swarm.chunks import Chunks
from hotplate.cache.swarm.content_state import HINTS, ContentState
from hotplate.cache.swarm.participants import LATE_S, PeerState
from hotplate.cache.swarm.peer_scores import PEER_REQUESTS, PeerScores
from hotplate.cache.swarm.upload_slots import UploadSlots
from tests.support.effort import lines_run

ALL = (1 << 40) - 1


def picker_of(count: int = 40, me: str = "me") -> ChunkPicker:
    picker = ChunkPicker(ContentState("key", Chunks("model", count), me, PeerScores()))
    picker.settled = True
    return picker


def receive(
    picker: ChunkPicker, peer: str, have: int = 0, origin_fetches: int = 0, now: float = 1.0
) -> None:
    """A message from a peer that has the view of all, as one does that fetches nothing itself."""
    picker.state.receive(peer, PeerState(have, origin_fetches, number=int(now * 1e6)), now)


def meet(one: ChunkPicker, two: ChunkPicker, now: float = 1.0) -> None:
    """They greet each other, each one the other, until each has acknowledged all."""
    for asker, asked in ((one, two), (two, one)) * 2:
        greet(asker, asked, now)


def greet(asker: ChunkPicker, asked: ChunkPicker, now: float = 1.0) -> None:
    asked.state.receive(asker.state.me, asker.state.state_for(asked.state.me), now)
    asker.state.receive(asked.state.me, asked.state.state_for(asker.state.me), now)


def take(
    picker: ChunkPicker, now: float = 1.0, wanted_only: bool = False, origin: bool = True
) -> Assignment:
    step = picker.next(now, wanted_only, origin)
    assert step is not None
    return step


def drain(picker: ChunkPicker, now: float = 1.0) -> list[Assignment]:
    """All that can be taken at once."""
    steps = []
    while (step := picker.next(now, False, True)) is not None:
        steps.append(step)
    return steps


def test_alone_all_comes_from_the_origin_in_file_order() -> None:
    steps = drain(picker_of(3))
    assert [(one.index, one.source) for one in steps] == [(0, ORIGIN), (1, ORIGIN), (2, ORIGIN)]
    assert steps[0].reason == "no peer has it"


def test_a_peer_that_has_it_comes_before_the_origin() -> None:
    picker = picker_of()
    receive(picker, "a", ALL)
    assert {one.source for one in drain(picker)} == {"a"}


def test_one_peer_is_asked_for_a_few_chunks_at_a_time() -> None:
    picker = picker_of()
    receive(picker, "a", ALL)
    assert len(drain(picker)) == PEER_REQUESTS


def test_to_find_that_all_peers_were_asked_for_enough_costs_no_more_with_more_chunks() -> None:
    costs = []
    for count in (1000, 10_000):
        picker = picker_of(count)
        receive(picker, "a", (1 << count) - 1)
        drain(picker)
        costs.append(lines_run(partial(picker.next, 1.0, wanted_only=False, origin_free=True)))
    assert costs[0] == costs[1]


def test_what_no_peer_has_is_found_though_they_were_asked_for_enough() -> None:
    picker = picker_of()
    receive(picker, "a", ALL & ~0b110000)
    assert ORIGIN in {one.source for one in drain(picker)}  # one of the two is ours


def test_a_peer_that_has_given_nothing_yet_is_asked_for_one_chunk_where_there_are_others() -> None:
    picker = picker_of()
    receive(picker, "a", ALL)
    receive(picker, "b", ALL)
    first, second = drain(picker)
    assert {first.source, second.source} == {"a", "b"}
    picker.verified(first, 0.1, 1.0)
    assert len(drain(picker)) == PEER_REQUESTS


def test_a_peer_that_has_answered_is_asked_for_more_before_what_it_gave_is_verified() -> None:
    picker = picker_of()
    receive(picker, "a", ALL)
    first = drain(picker)[0]
    picker.request_ended(first, 1.0)
    assert len(drain(picker)) == 1
    picker.verified(first, 0.1, 2.0)
    assert not drain(picker)


def test_requests_that_peers_keep_leave_the_origins_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hotplate.cache.swarm.origin_window.WINDOW_FIRST", 8)
    picker = picker_of()
    for peer in "abc":
        receive(picker, peer)
    step = picker.next(1.0, False, True, peers_free=False, waits_free=False)
    assert step is not None and step.source == ORIGIN


def test_what_a_reader_waits_for_comes_first() -> None:
    picker = picker_of()
    picker.state.chunks.want([33])
    step = take(picker, wanted_only=True)
    assert step.index == 33 and step.urgent


def test_each_chunk_has_one_owner_that_all_others_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hotplate.cache.swarm.origin_window.WINDOW_FIRST", 8)
    names = [f"n{number}" for number in range(5)]
    sources: dict[int, list[str]] = {}
    for me in names:
        picker = picker_of(10, me)
        for peer in names:
            if peer != me:
                receive(picker, peer)
        for step in drain(picker):
            sources.setdefault(step.index, []).append(step.source)
    owned = [found.count(ORIGIN) for found in sources.values()]
    assert max(owned) == 1 and sum(owned) >= 4


def test_the_origin_is_not_asked_before_the_peers_were() -> None:
    picker = picker_of()
    picker.settled = False
    assert picker.next(1.0, False, True) is None
    picker.settled = True
    assert take(picker).source == ORIGIN


def test_after_somebody_joined_the_origin_waits_until_all_know_that_they_know() -> None:
    one, two, three = (picker_of(me=name) for name in ("one", "two", "three"))
    meet(one, two)
    assert ORIGIN in {step.source for step in drain(one)}
    greet(three, one)  # three knows two of nobody yet
    greet(one, two)
    assert one.next(1.0, True, True) is None
    one.state.chunks.want(range(40))
    assert ORIGIN not in {step.source for step in drain(one)}
    meet(three, two)
    greet(one, two)
    greet(one, three)
    assert ORIGIN in {step.source for step in drain(one)}


def test_views_that_differ_for_long_no_longer_keep_anybody_from_the_origin() -> None:
    picker = picker_of()
    picker.state.receive("a", PeerState(0, view=1, number=1), 1.0)
    assert ORIGIN not in {step.source for step in drain(picker, 1.0)}
    assert ORIGIN in {step.source for step in drain(picker, 1.0 + LATE_S)}


def test_a_message_that_was_overtaken_takes_back_nothing() -> None:
    picker = picker_of(1)
    picker.state.receive("a", PeerState(0, origin_fetches=1, number=2), 1.0)
    picker.state.receive("a", PeerState(0, origin_fetches=0, number=1), 1.0)
    assert take(picker).source == "a"


def test_a_response_that_a_greeting_has_overtaken_removes_no_participant() -> None:
    picker = picker_of()
    asked = picker.state.state_for("a").number
    receive(picker, "a")
    picker.state.forget("a", 1.0, asked)  # it had nothing then, and has begun since
    assert picker.state.participants == ["a"]
    picker.state.forget("a", 1.0, picker.state.state_for("a").number)
    assert picker.state.participants == []


def test_what_a_stalled_owner_should_bring_is_taken_once_it_has_acknowledged_that() -> None:
    one, two = picker_of(1, "one"), picker_of(1, "two")
    meet(one, two)
    owner, other = (one, two) if owns("two", me="one") else (two, one)
    step = take(other)
    assert step.source == owner.state.me
    other.missed(step, Missed.STALLED, 2.0)
    assert (
        other.next(2.0, False, True) is None
        and other.state.origin_fetches.bits == 1
        and other.state.changed
    )
    greet(other, owner, 3.0)
    assert take(other, 3.0).source == ORIGIN
    assert take(owner, 3.0).source == other.state.me


def test_what_a_stalled_owner_has_begun_to_bring_is_left_to_it() -> None:
    one, two = picker_of(1, "one"), picker_of(1, "two")
    meet(one, two)
    owner, other = (one, two) if owns("two", me="one") else (two, one)
    other.missed(take(other), Missed.STALLED, 2.0)
    assert other.next(2.0, False, True) is None
    begun = take(owner, 2.0)
    assert begun.source == ORIGIN
    greet(other, owner, 3.0)
    now = 3.0
    while now < 60.0:  # as long as bytes come to it, however few
        step = other.next(now, False, True)
        assert step is None or step.source == owner.state.me
        if step is not None:
            other.missed(step, Missed.NOT_YET, now)
        owner.state.chunks.received(0, int(now), now)
        greet(owner, other, now)
        now += LATE_S / 2
    owner.verified(begun, 0.1, now)
    greet(owner, other, now)
    assert take(other, now).source == owner.state.me


def test_a_chunk_that_a_peer_takes_from_the_origin_is_left_to_it() -> None:
    picker = picker_of(1, "me")
    peer = next(name for name in "abcdef" if owns(name))
    receive(picker, peer, origin_fetches=1)
    assert take(picker).source == peer


def owns(peer: str, me: str = "me") -> bool:
    """Whether "me" comes before that peer in the order of chunk 0."""
    picker = picker_of(1, me)
    receive(picker, peer)
    return take(picker).source == ORIGIN


def test_a_copy_on_disk_comes_before_all_and_its_damage_goes_to_others() -> None:
    picker = picker_of(2)
    picker.local = True
    picker.settled = False
    step = take(picker)
    assert step.source == HERE
    picker.damaged(step)
    assert take(picker).source == HERE  # the other chunk
    assert picker.next(1.0, False, True) is None
    picker.settled = True
    assert take(picker).source == ORIGIN


def test_behind_the_head_the_rarest_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hotplate.cache.swarm.chunk_picker.HEAD", 0)
    picker = picker_of(5)
    receive(picker, "a", 0b11111)
    receive(picker, "b", 0b01111)
    receive(picker, "c", 0b00110)
    receive(picker, "d", 0b00111)
    assert [one.index for one in drain(picker, 2.0)] == [4, 3, 0, 1]


def test_what_is_due_from_the_origin_is_brought_though_much_before_it_is_still_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hotplate.cache.swarm.chunk_picker.HEAD", 2)
    steps = []
    for me in "abc":
        picker = picker_of(5, me)
        for peer in set("abc") - {me}:
            receive(picker, peer, 0b01111)
        steps += drain(picker)
    assert [one.index for one in steps if one.source == ORIGIN] == [4]


def test_few_chunks_are_on_their_way_from_the_origin_until_some_have_come() -> None:
    pickers = [picker_of(40, me) for me in "abcd"]
    for picker in pickers:
        for peer in set("abcd") - {picker.state.me}:
            receive(picker, peer)
    due = {step.index for picker in pickers for step in drain(picker) if step.source == ORIGIN}
    assert due == {0, 1}
    for picker in pickers:
        for peer in set("abcd") - {picker.state.me}:
            receive(picker, peer, 0b1111, now=2.0)
    due = {step.index for picker in pickers for step in drain(picker, 2.0) if step.source == ORIGIN}
    assert due == {4, 5, 6, 7}


def test_a_node_that_finds_a_peer_busy_asks_each_peer_of_a_hint_once() -> None:
    picker = picker_of(1)
    receive(picker, "a", 1)
    for peer in "bc":
        receive(picker, peer)
    picker.missed(take(picker), Missed.BUSY, 1.0, retry_s=5.0)
    assert picker.next(1.0, False, True) is None
    picker.state.add_hints(0, ["c", "me", "unknown"])
    step = take(picker)
    assert (step.source, step.reason) == ("c", "has it according to another peer")
    picker.missed(step, Missed.NOT_YET, 1.0)
    assert picker.next(1.0, False, True) is None


def test_what_peers_have_by_a_hint_only_is_still_brought_from_the_origin() -> None:
    picker = picker_of(1)
    peer = next(name for name in "abcdef" if owns(name))
    receive(picker, peer)
    picker.state.add_hints(0, [peer])
    picker.missed(take(picker), Missed.NOT_YET, 1.0)
    assert take(picker).source == ORIGIN


def test_a_busy_node_names_a_few_peers_that_have_the_chunk_and_not_the_same_to_all() -> None:
    picker = picker_of(1)
    peers = [f"n{number}" for number in range(20)]
    for peer in peers:
        receive(picker, peer, 1)
    picker.state.forget("n0", 2.0)
    named = [picker.state.other_holders(0, asker) for asker in peers]
    for asker, names in zip(peers, named, strict=True):
        assert len(names) == HINTS and asker not in names and "n0" not in names
    assert set().union(*named) == set(peers[1:])


def test_upload_slots_are_few_and_say_when_to_come_back() -> None:
    uploads = UploadSlots(2)
    assert uploads.begin() is None and uploads.begin() is None
    retry_s = uploads.begin()
    assert retry_s is not None and 0 < retry_s <= 1
    uploads.end(0.5)
    assert uploads.begin() is None


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 50))
def test_no_chunk_is_lost_or_taken_twice_whatever_peers_do(
    seed: int, peers: int, count: int
) -> None:
    rng = random.Random(seed)
    picker = picker_of(count)
    names = [f"n{number}" for number in range(peers)]
    now, under_way, banned = 0.0, list[Assignment](), set[str]()
    for _ in range(40 * count + 200):
        now += rng.random()
        if rng.random() < 0.2:
            receive(picker, rng.choice(names), rng.getrandbits(count), rng.getrandbits(count), now)
        if rng.random() < 0.05:
            picker.state.forget(rng.choice(names), now)
        if rng.random() < 0.1:
            picker.state.chunks.want([rng.randrange(count)])
        step = picker.next(now, rng.random() < 0.3, rng.random() < 0.9)
        if step is not None:
            assert step.index not in {one.index for one in under_way}
            assert not picker.state.chunks.verified_bits >> step.index & 1
            assert step.source not in banned
            under_way.append(step)
            assert sum(one.source == step.source != ORIGIN for one in under_way) <= PEER_REQUESTS
        if under_way and rng.random() < 0.7:
            step = under_way.pop(rng.randrange(len(under_way)))
            if rng.random() < 0.5:
                picker.verified(step, 0.1, now)
            elif step.source == ORIGIN:
                picker.failed(step, OriginUnavailable("down"), now)
            else:
                why = rng.choice(list(Missed))
                banned |= {step.source} if why is Missed.CORRUPT else set()
                picker.missed(step, why, now, 0.1)
        assert bool(picker.state.origin_fetches.bits) == any(
            one.source == ORIGIN for one in under_way
        )
    for step in under_way:
        picker.verified(step, 0.1, now)
    for _ in range(100 * count):
        if picker.state.chunks.complete:
            break
        now += 2.0
        if (last := picker.next(now, False, True)) is not None:
            picker.verified(last, 0.1, now)
    assert picker.state.chunks.complete
