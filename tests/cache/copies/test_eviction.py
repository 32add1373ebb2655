from __future__ import annotations

import random

from hotplate.cache.copies.eviction import EvictionCandidate, evict

MIB = 1 << 20


def candidate(key: str, size_bytes: int, used: int, pin: str = "") -> EvictionCandidate:
    return EvictionCandidate(key, size_bytes, (0, used), pin)


def test_the_least_recently_used_go_first_and_no_more_than_needed() -> None:
    blobs = [
        candidate("new", 4 * MIB, 9),
        candidate("old", 4 * MIB, 1),
        candidate("middle", 4 * MIB, 5),
    ]
    eviction = evict(blobs, 5 * MIB)
    assert [one.key for one in eviction.victims] == ["old", "middle"]
    assert eviction.reason == ("5 MiB are lacking: 2 blobs of 8 MiB go, least recently used first")


def test_what_is_pinned_stays_and_the_reason_says_by_what() -> None:
    blobs = [
        candidate("a", 4 * MIB, 1, "in a tree"),
        candidate("b", 2 * MIB, 2, "leased"),
        candidate("c", MIB, 3),
    ]
    eviction = evict(blobs, 3 * MIB)
    assert eviction.victims == ()
    assert eviction.reason == (
        "3 MiB are lacking and 1 MiB could go (4 MiB in a tree, 2 MiB leased)"
    )


def test_nothing_goes_when_nothing_is_lacking() -> None:
    assert evict([candidate("a", MIB, 1)], 0).victims == ()


def test_any_eviction_frees_enough_or_nothing_and_never_a_pinned_blob() -> None:
    rng = random.Random(1)
    for _ in range(300):
        blobs = [
            candidate(str(n), rng.randrange(1, 99), rng.randrange(9), rng.choice(["", "leased"]))
            for n in range(rng.randrange(9))
        ]
        lacking = rng.randrange(1, 300)
        victims = evict(blobs, lacking).victims
        freed = sum(one.size_bytes for one in victims)
        assert all(not one.pin for one in victims)
        idle = sum(one.size_bytes for one in blobs if not one.pin)
        assert freed >= lacking if idle >= lacking else not victims
        assert not victims or freed - victims[-1].size_bytes < lacking
