"""What is believed of a draft's digests."""

from __future__ import annotations

from hotplate.cache.swarm.attestations import AHEAD, Attestations
from hotplate.cache.swarm.peer_scores import PeerScores


def words_of() -> Attestations:
    return Attestations(PeerScores())


def test_what_nobody_contradicts_is_believed() -> None:
    words = words_of()
    words.hear("b", 3, ["right", "", "next"], 1.0)
    assert words.has_heard("b", 3) and words.has_heard("b", 5) and not words.has_heard("b", 4)
    assert words.believe(3, "a", "right", 1.0)
    assert words.believe(4, "a", "alone", 1.0)
    assert not words.disputed


def test_what_two_contradict_each_other_on_is_disputed_until_the_origin_tells() -> None:
    words = words_of()
    words.hear("b", 3, ["right"], 1.0)
    assert not words.believe(3, "a", "wrong", 1.0)
    assert words.disputed == 1 << 3
    assert words.settle(3, "right", 1.0) == ({"a"}, [])
    assert not words.disputed


def test_both_may_be_wrong() -> None:
    words = words_of()
    words.hear("b", 0, ["worse"], 1.0)
    assert not words.believe(0, "a", "wrong", 1.0)
    assert words.settle(0, "right", 1.0)[0] == {"a", "b"}


def test_what_was_believed_on_a_liars_word_alone_is_in_doubt() -> None:
    words = words_of()
    words.hear("b", 1, ["seconded", "", "right"], 1.0)
    for index, digest in enumerate(("lone", "seconded", "lone")):
        assert words.believe(index, "a", digest, 1.0)
    assert not words.believe(3, "a", "wrong", 1.0)
    assert words.settle(3, "right", 1.0) == ({"a"}, [0, 2])


def test_a_liar_that_was_found_out_contradicts_nobody_and_is_not_believed() -> None:
    words = words_of()
    words.hear("liar", 0, ["wrong", "wrong"], 1.0)
    assert not words.believe(0, "a", "right", 1.0)
    assert not words.believe(1, "a", "right", 1.0)
    assert words.settle(0, "right", 1.0) == ({"liar"}, [])
    words.hear("liar", 1, ["wrong"], 2.0)  # it was asked before
    assert not words.disputed and words.believe(1, "a", "right", 2.0)
    assert not words.believe(2, "liar", "wrong", 2.0) and not words.disputed


def test_no_peer_fills_this_node_with_words() -> None:
    words = words_of()
    words.hear("a", 0, ["x"] * (AHEAD + 5), 1.0)
    assert words.has_heard("a", AHEAD - 1) and not words.has_heard("a", AHEAD)
