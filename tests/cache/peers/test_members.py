from __future__ import annotations

from hotplate.cache.peers.members import FORGET_S, LIVE_S, Members


def test_who_answers_is_there_until_it_is_silent() -> None:
    members = Members("me")
    members.tell(["a:1", "b:1"], 0.0)
    assert members.live(0.0) == {} and members.awaited(0.0) == {"a:1", "b:1"}
    members.met("a:1", "A", 1.0)
    members.silent("b:1", 1.0, refused=False)
    assert members.live(1.0) == {"A": "a:1"} and members.awaited(1.0) == {"a:1"}
    assert members.live(1.0 + LIVE_S) == {}
    members.met("a:1", "A", 19.0)
    assert members.silent("a:1", 20.0, refused=False) == ""  # it may be busy
    assert members.live(20.0) == {"A": "a:1"}
    assert members.silent("a:1", 20.0, refused=True) == "A"
    assert members.live(20.0) == {}


def test_who_answers_nothing_for_long_is_gone() -> None:
    members = Members("me")
    members.met("a:1", "A", 0.0)
    assert members.silent("a:1", LIVE_S - 1.0, refused=False) == ""
    assert members.silent("a:1", LIVE_S, refused=False) == "A"


def test_an_agent_that_is_started_again_is_another() -> None:
    members = Members("me")
    assert members.met("a:1", "A", 0.0) == ""
    assert members.met("a:1", "A", 1.0) == ""
    assert members.met("a:1", "B", 2.0) == "A"
    assert members.live(2.0) == {"B": "a:1"}


def test_an_agent_with_two_addresses_is_one() -> None:
    members = Members("me")
    members.met("a:1", "A", 0.0)
    members.met("localhost:1", "A", 0.0)
    assert members.live(0.0) == {"A": "a:1"}


def test_ones_own_address_is_no_peer() -> None:
    members = Members("me")
    members.tell(["a:1", "b:1"], 0.0)
    members.met("a:1", "me", 0.0)
    assert members.addresses() == ["b:1"] and members.live(0.0) == {}


def test_who_was_only_heard_of_and_never_answers_is_forgotten() -> None:
    members = Members("me")
    members.tell(["a:1"], 0.0)
    assert members.hear_of("b:1", 0.0) and not members.hear_of("b:1", 1.0)
    for address in ("a:1", "b:1"):
        members.silent(address, FORGET_S, refused=True)
    assert members.addresses() == ["a:1"]
