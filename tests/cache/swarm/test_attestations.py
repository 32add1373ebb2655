"""Which digests of a draft are accepted."""

from __future__ import annotations

from hotplate.cache.swarm.attestations import DIGESTS_PER_REQUEST, Attestations
from hotplate.cache.swarm.peer_scores import PeerScores


def new_attestations() -> Attestations:
    return Attestations(PeerScores())


def test_what_no_peer_contradicts_is_accepted() -> None:
    attestations = new_attestations()
    attestations.record("b", 3, ["right", "", "next"], 1.0)
    assert (
        attestations.has_attested("b", 3)
        and attestations.has_attested("b", 5)
        and not attestations.has_attested("b", 4)
    )
    assert attestations.accept(3, "a", "right", 1.0)
    assert attestations.accept(4, "a", "alone", 1.0)
    assert not attestations.disputed


def test_what_two_contradict_each_other_on_is_disputed_until_the_origin_tells() -> None:
    attestations = new_attestations()
    attestations.record("b", 3, ["right"], 1.0)
    assert not attestations.accept(3, "a", "wrong", 1.0)
    assert attestations.disputed == 1 << 3
    assert attestations.resolve(3, "right", 1.0) == ({"a"}, [])
    assert not attestations.disputed


def test_both_may_be_wrong() -> None:
    attestations = new_attestations()
    attestations.record("b", 0, ["worse"], 1.0)
    assert not attestations.accept(0, "a", "wrong", 1.0)
    assert attestations.resolve(0, "right", 1.0)[0] == {"a", "b"}


def test_what_was_accepted_on_a_liars_attestation_alone_is_in_doubt() -> None:
    attestations = new_attestations()
    attestations.record("b", 1, ["seconded", "", "right"], 1.0)
    for index, digest in enumerate(("lone", "seconded", "lone")):
        assert attestations.accept(index, "a", digest, 1.0)
    assert not attestations.accept(3, "a", "wrong", 1.0)
    assert attestations.resolve(3, "right", 1.0) == ({"a"}, [0, 2])


def test_a_banned_peer_contradicts_no_other_and_is_not_accepted() -> None:
    attestations = new_attestations()
    attestations.record("liar", 0, ["wrong", "wrong"], 1.0)
    assert not attestations.accept(0, "a", "right", 1.0)
    assert not attestations.accept(1, "a", "right", 1.0)
    assert attestations.resolve(0, "right", 1.0) == ({"liar"}, [])
    attestations.record("liar", 1, ["wrong"], 2.0)  # it was asked before
    assert not attestations.disputed and attestations.accept(1, "a", "right", 2.0)
    assert not attestations.accept(2, "liar", "wrong", 2.0) and not attestations.disputed


def test_no_peer_fills_this_node_with_attestations() -> None:
    attestations = new_attestations()
    attestations.record("a", 0, ["x"] * (DIGESTS_PER_REQUEST + 5), 1.0)
    assert attestations.has_attested(
        "a", DIGESTS_PER_REQUEST - 1
    ) and not attestations.has_attested("a", DIGESTS_PER_REQUEST)


def test_a_liars_withdrawal_settles_only_what_nobody_else_contradicts() -> None:
    attestations = Attestations(PeerScores())
    for index in (1, 2, 3):
        attestations.record("liar", index, ["wrong"], 0.0)
        attestations.record("a", index, ["right"], 0.0)
    attestations.record("b", 3, ["other"], 0.0)
    for index in (1, 2, 3):
        assert not attestations.accept(index, "a", "right", 0.0)
    assert attestations.disputed == 0b1110
    assert attestations.resolve(1, "right", 0.0) == ({"liar"}, [])
    assert attestations.disputed == 0b1000, "a and b still contradict each other"


def test_what_a_peer_lacks_is_no_attestation() -> None:
    attestations = Attestations(PeerScores())
    attestations.record("a", 4, ["x", "", "z"], 0.0)
    assert [attestations.has_attested("a", index) for index in range(3, 8)] == [
        False,
        True,
        False,
        True,
        False,
    ]
    assert not attestations.has_attested("b", 4)
