"""What a node knows of the others by their messages, in whichever order these come."""

from __future__ import annotations

import pytest

from hotplate.cache.swarm.participants import (
    LATE_S,
    ORIGIN_FETCH_MAX_S,
    Participants,
    PeerState,
    PeerUpdate,
    number_at,
)

NOW = 100.0


def received(**state: int) -> Participants:
    """What a node knows that has had this message of `a`."""
    mine = Participants("me", 0.0)
    mine.receive("a", PeerState(**{"have": 0, "number": 1, **state}), NOW)
    return mine


def test_a_message_says_what_is_new() -> None:
    mine = Participants("me", 0.0)
    assert mine.names == []
    assert mine.receive("a", PeerState(0b11, number=5), NOW) == PeerUpdate(0b11, True)
    assert (mine.names, mine.holders) == (["a"], {0: ["a"], 1: ["a"]})
    assert mine.receive("a", PeerState(0b111, number=6, progress=1), NOW) == PeerUpdate(
        0b100, False, True
    )
    assert [mine.count(index) for index in (0, 2, 3)] == [1, 1, 0]
    assert mine.receive("a", PeerState(0b111, number=7, progress=1), NOW) == PeerUpdate(0)
    mine.receive("b", PeerState(0b1001, number=1), NOW)
    assert mine.have(["a"]) == 0b111
    assert mine.have(["a", "b"]) == 0b1111
    assert mine.have([]) == 0
    assert mine.count(0) == 2


@pytest.mark.parametrize(("number", "counts"), [(4, False), (5, True), (6, True)])
def test_a_message_that_was_overtaken_says_only_what_its_sender_has(
    number: int, counts: bool
) -> None:
    mine = received(number=5, have=0b1, origin_fetches=0b100)
    late = PeerState(0b10, number=number, origin_fetches=0b1000, progress=9)
    update = mine.receive("a", late, NOW)
    assert update.have == 0b10
    assert update.progressed is counts
    assert mine.origin_fetches("a") == (0b1000 if counts else 0b100)
    assert mine.have(["a"]) & 0b10


def test_messages_are_numbered_and_acknowledge_what_has_come() -> None:
    mine = Participants("me", 2.0)
    assert mine.last_number == number_at(2.0) == 2_000_000
    first = mine.state_for("a", 0b1, 0b10, 3)
    assert (first.have, first.origin_fetches, first.progress) == (0b1, 0b10, 3)
    assert (first.number, first.acknowledged) == (2_000_001, 0)
    mine.receive("a", PeerState(0, number=7), NOW)
    second = mine.state_for("a", 0, 0, 0)
    assert (second.number, second.acknowledged) == (2_000_002, 7)
    assert mine.last_number == 2_000_002


def agree(mine: Participants, theirs: Participants) -> None:
    """Each has the other's newest message."""
    for _ in range(2):
        theirs.receive("me", mine.state_for("a", 0, 0, 0), NOW)
        mine.receive("a", theirs.state_for("me", 0, 0, 0), NOW)


def nobody(_: str) -> bool:
    return False


def test_nodes_agree_once_each_has_acknowledged_the_others_view() -> None:
    mine, theirs = Participants("me", 0.0), Participants("a", 0.0)
    assert mine.agreed(NOW, nobody), "it is alone"
    theirs.receive("me", mine.state_for("a", 0, 0, 0), NOW)
    mine.receive("a", theirs.state_for("me", 0, 0, 0), NOW)
    assert not mine.agreed(NOW, nobody), "this was sent before ours"
    assert mine.agreed(NOW, {"a"}.__contains__)
    assert not mine.agreed(NOW + LATE_S - 0.1, nobody)
    assert mine.agreed(NOW + LATE_S, nobody)
    agree(mine, theirs)
    assert mine.agreed(NOW, nobody)
    mine.receive("b", PeerState(0, number=1, view=1), NOW)
    assert not mine.agreed(NOW, nobody)
    assert mine.forget("b", None, NOW)
    assert not mine.agreed(NOW, nobody), "a does not know yet that b is gone"
    agree(mine, theirs)
    assert mine.agreed(NOW, nobody)


def test_who_fetches_nothing_agrees_with_everybody() -> None:
    mine = received(view=0)
    assert mine.agreed(NOW, nobody)
    assert mine.has_acknowledged("a", 10**12)


@pytest.mark.parametrize(("acknowledged", "has"), [(6, False), (7, False), (8, True)])
def test_an_announcement_is_acknowledged_by_a_later_message(acknowledged: int, has: bool) -> None:
    mine = received(view=1, acknowledged=acknowledged)
    assert mine.has_acknowledged("a", 7) is has


def test_what_is_announced_is_late_without_progress_and_in_any_case_in_the_end() -> None:
    mine = received(origin_fetches=0b10)
    assert not mine.is_late("a", 0, NOW + 1e9)
    assert not mine.is_late("a", 1, NOW + LATE_S - 0.1)
    assert mine.is_late("a", 1, NOW + LATE_S)
    mine.receive("a", PeerState(0, 0b10, progress=1, number=2), NOW + LATE_S)
    assert not mine.is_late("a", 1, NOW + LATE_S)
    at = NOW + ORIGIN_FETCH_MAX_S
    mine.receive("a", PeerState(0, 0b10, progress=2, number=3), at - 1)
    assert not mine.is_late("a", 1, at - 0.1)
    assert mine.is_late("a", 1, at)
    mine.receive("a", PeerState(0, 0, number=4), at)
    assert not mine.is_late("a", 1, at)


def test_who_is_gone_is_in_no_view_and_may_come_back() -> None:
    mine = received(have=0b1, origin_fetches=0b10)
    assert not mine.forget("b", None, NOW)
    assert mine.forget("a", None, NOW)
    assert not mine.forget("a", None, NOW)
    assert (mine.names, mine.gone) == ([], {"a"})
    assert mine.origin_fetches("a") == 0
    assert not mine.is_late("a", 1, NOW + 1e9)
    update = mine.receive("a", PeerState(0b1, number=2), NOW)
    assert update.joined
    assert (mine.names, mine.gone) == (["a"], set())


def test_a_reply_to_a_message_before_its_senders_own_is_overtaken() -> None:
    mine = Participants("me", 0.0)
    asked = mine.state_for("a", 0, 0, 0).number
    mine.receive("a", PeerState(0, number=1), NOW)
    assert not mine.forget("a", asked, NOW)
    again = mine.state_for("a", 0, 0, 0).number
    assert mine.forget("a", again, NOW)


def test_what_a_peer_says_with_a_chunk_adds_to_what_it_has() -> None:
    mine = received(have=0b1)
    assert mine.note_have("b", 0b1) == 0, "it takes no part"
    assert mine.note_have("a", 0b111) == 0b110
    assert mine.note_have("a", 0b10) == 0
    assert mine.have(["a"]) == 0b111
    assert mine.holders == {0: ["a"], 1: ["a"], 2: ["a"]}
