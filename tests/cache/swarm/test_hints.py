"""Which chunks a peer has according to others, and sets of chunks as numbers."""

from __future__ import annotations

from hotplate.cache.swarm.bitmap import bits, first
from hotplate.cache.swarm.hints import Hints


def test_a_hint_is_followed_once() -> None:
    hints = Hints()
    hints.add(3, ["a", "b"])
    hints.add(5, ["a"])
    assert (hints.peers(3), hints.peers(5), hints.peers(4)) == (["a", "b"], ["a"], [])
    assert hints.chunks(["a"]) == 0b101000
    assert hints.chunks(["b", "c"]) == 0b1000
    assert hints.chunks([]) == 0
    for peer in ("a", "a", "c"):
        hints.use(3, peer)
    assert (hints.peers(3), hints.peers(5)) == (["b"], ["a"])
    assert hints.chunks(["a", "b"]) == 0b101000
    assert hints.chunks(["a"]) == 0b100000


def test_chunks_are_bits_the_lowest_first() -> None:
    assert list(bits(0)) == []
    assert list(bits(0b1010_0001)) == [0, 5, 7]
    assert [first(0b1010_0001, count) for count in range(5)] == [
        0,
        0b1,
        0b10_0001,
        0b1010_0001,
        0b1010_0001,
    ]
