from __future__ import annotations

import random
from itertools import chain

from hotplate.cache.errors import ChunkCorrupt, NoSpace, OriginUnavailable, UnknownBlob
from hotplate.cache.swarm.bitmap import bits
from hotplate.cache.swarm.chunks import Chunks

DOWN = OriginUnavailable("connection refused")


def taken(chunks: Chunks, now: float, wanted_only: bool = False) -> int | None:
    """The chunk that is to come next, taken."""
    behind = () if wanted_only else bits(chunks.missing_bits(now))
    index = next(chain(chunks.wanted(now), behind), None)
    if index is not None:
        chunks.take(index, now)
    return index


def test_chunks_are_taken_in_file_order_each_by_one_caller() -> None:
    chunks = Chunks("a", 3)
    assert [taken(chunks, 0.0) for _ in range(4)] == [0, 1, 2, None]


def test_what_a_reader_wants_comes_first() -> None:
    chunks = Chunks("a", 5)
    chunks.want([3, 4])
    assert [taken(chunks, 0.0, wanted_only=True) for _ in range(3)] == [3, 4, None]
    assert taken(chunks, 0.0) == 0


def test_only_what_is_wanted_comes_until_all_is_to() -> None:
    chunks = Chunks("a", 3)
    chunks.whole = False
    chunks.want([1])
    assert [taken(chunks, 0.0) for _ in range(2)] == [1, None]
    assert chunks.wakes_at() is None, "nobody need look again before somebody wants more"
    chunks.whole = True
    assert [taken(chunks, 0.0) for _ in range(3)] == [0, 2, None]


def test_a_wish_for_what_is_here_or_never_was_changes_nothing() -> None:
    chunks = Chunks("a", 2)
    index = taken(chunks, 0.0)
    assert index == 0
    chunks.verified(index, 0.0)
    chunks.want([0, 7, -1])
    assert taken(chunks, 0.0, wanted_only=True) is None


def test_a_failed_chunk_is_tried_again_after_a_growing_pause() -> None:
    chunks = Chunks("a", 1)
    pauses = []
    now = 0.0
    for _ in range(6):
        assert taken(chunks, now) == 0
        assert chunks.failed(0, DOWN, now) is None
        wakes_at = chunks.wakes_at()
        assert wakes_at is not None and taken(chunks, wakes_at - 0.01) is None
        pauses.append(round(wakes_at - now, 3))
        now = wakes_at
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0]


def test_other_chunks_go_on_while_one_is_held_back() -> None:
    chunks = Chunks("a", 2)
    taken(chunks, 0.0)
    chunks.failed(0, DOWN, 0.0)
    assert taken(chunks, 0.0) == 1


def test_bytes_on_their_way_are_progress_and_the_same_ones_again_are_not() -> None:
    chunks = Chunks("a", 2)
    taken(chunks, 0.0)
    for now in (20.0, 40.0):
        chunks.received(0, int(now), now)
        assert chunks.stalled(now + 29.0) is None
    assert chunks.failed(0, DOWN, 45.0) is None
    assert taken(chunks, 50.0) == 0
    chunks.received(0, 40, 60.0)
    assert chunks.stalled(69.0) is None
    assert isinstance(chunks.stalled(70.0), OriginUnavailable), "it breaks where it broke before"


def test_thirty_seconds_of_failures_are_the_end() -> None:
    chunks = Chunks("model.safetensors", 2)
    now = 100.0
    taken(chunks, now)
    chunks.verified(0, now)
    while True:
        assert taken(chunks, now) == 1
        error = chunks.failed(1, DOWN, now)
        if error is not None:
            break
        now = chunks.wakes_at() or now
    assert isinstance(error, OriginUnavailable)
    assert 130.0 <= now <= 132.0
    assert str(error) == (
        "model.safetensors: nothing new arrived in 30 s, 1 of 2 chunks are here; "
        "last: connection refused"
    )


def test_an_attempt_that_hangs_is_noticed_without_its_report() -> None:
    chunks = Chunks("a", 1)
    taken(chunks, 5.0)
    assert chunks.stalls_at() == 35.0
    assert chunks.stalled(34.9) is None
    assert isinstance(chunks.stalled(35.0), OriginUnavailable)


def test_waiting_behind_other_files_is_not_stalling() -> None:
    chunks = Chunks("a", 1)
    assert chunks.stalls_at() is None
    taken(chunks, 1000.0)
    assert chunks.stalls_at() == 1030.0


def test_a_corrupt_chunk_is_fetched_three_more_times_and_then_named() -> None:
    chunks = Chunks("model.safetensors", 9)
    chunks.want([4])
    for _ in range(3):
        assert taken(chunks, 0.0) == 4
        assert chunks.failed(4, ChunkCorrupt("x"), 0.0) is None
    assert taken(chunks, 0.0) == 4
    error = chunks.failed(4, ChunkCorrupt("x"), 0.0)
    assert isinstance(error, ChunkCorrupt)
    assert "model.safetensors: chunk 4 of 9 was corrupt 4 times; the origin has other" in str(error)


def test_what_no_second_try_can_mend_fails_at_once() -> None:
    for error in (UnknownBlob("gone"), NoSpace("full")):
        chunks = Chunks("a", 1)
        taken(chunks, 0.0)
        assert chunks.failed(0, error, 0.0) is error


def test_a_thousand_random_events_lose_and_repeat_no_chunk() -> None:
    rng = random.Random(7)
    chunks = Chunks("a", 40)
    now, under_way, verified = 0.0, set[int](), set[int]()
    while not chunks.complete:
        now += rng.random() * 0.1
        if rng.random() < 0.2:
            chunks.want([rng.randrange(40)])
        if rng.random() < 0.6 and (index := taken(chunks, now)) is not None:
            assert index not in under_way | verified
            under_way.add(index)
        elif under_way:
            index = rng.choice(sorted(under_way))
            under_way.remove(index)
            if rng.random() < 0.2:
                assert chunks.failed(index, DOWN, now) is None
            else:
                chunks.verified(index, now)
                verified.add(index)
    assert verified == set(range(40)) and taken(chunks, now) is None


def test_progress_is_counted_and_whoever_has_all_is_complete() -> None:
    chunks = Chunks("a", 2)
    assert (chunks.progress, chunks.complete, chunks.verified_bits) == (0, False, 0)
    chunks.take(1, 0.0)
    chunks.received(1, 5, 1.0)
    chunks.received(1, 5, 2.0)
    chunks.received(1, 6, 3.0)
    assert chunks.progress == 2
    chunks.verified(1, 4.0)
    assert (chunks.progress, chunks.complete, chunks.verified_bits) == (3, False, 0b10)
    chunks.take(0, 4.0)
    chunks.verified(0, 5.0)
    assert (chunks.progress, chunks.complete, chunks.verified_bits) == (4, True, 0b11)


def test_what_is_to_come_is_awaited() -> None:
    chunks = Chunks("a", 3)
    assert all(chunks.awaited(index) for index in range(3))
    chunks.whole = False
    chunks.want([1])
    chunks.take(2, 0.0)
    assert [chunks.awaited(index) for index in range(3)] == [False, True, True]
    assert chunks.any_wanted
    chunks.take(1, 0.0)
    chunks.verified(1, 0.0)
    assert not chunks.any_wanted


def test_the_clock_of_a_stall_begins_with_the_first_try_and_with_each_progress() -> None:
    chunks = Chunks("a", 2, stall_s=30.0)
    assert chunks.stalls_at() is None
    chunks.take(0, 100.0)
    assert chunks.stalls_at() == 130.0
    chunks.take(1, 110.0)
    assert chunks.stalls_at() == 130.0, "somebody was trying already"
    assert chunks.stalled(129.9) is None
    assert chunks.stalled(130.0) is not None
    chunks.verified(0, 120.0)
    assert chunks.stalls_at() == 150.0
    assert chunks.missed(1, 149.9) is None
    chunks.take(1, 149.9)
    assert chunks.stalls_at() == 150.0, "a try that failed is no progress"
    assert chunks.missed(1, 150.0) is not None


def test_after_a_success_the_clock_begins_anew_with_the_next_try() -> None:
    chunks = Chunks("a", 2, stall_s=30.0)
    chunks.take(0, 0.0)
    chunks.missed(0, 10.0)
    chunks.take(0, 10.0)
    chunks.verified(0, 20.0)
    chunks.take(1, 1000.0)
    assert chunks.stalls_at() == 1030.0


def test_what_the_origin_did_not_give_is_known_until_it_is_tried_again() -> None:
    chunks = Chunks("a", 1)
    chunks.take(0, 0.0)
    assert not chunks.cannot(0)
    chunks.failed(0, DOWN, 0.0)
    assert chunks.cannot(0)
    wakes_at = chunks.wakes_at()
    assert wakes_at is not None
    assert chunks.missing_bits(wakes_at - 0.01) == 0
    assert chunks.missing_bits(wakes_at) == 1
    chunks.want([0])
    assert list(chunks.wanted(wakes_at - 0.01)) == []
    assert list(chunks.wanted(wakes_at)) == [0]
    chunks.clear_backoff(0)
    assert chunks.wakes_at() is None
    chunks.take(0, 1.0)
    assert not chunks.cannot(0)
