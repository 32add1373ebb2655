from __future__ import annotations

from hotplate.cache.peers.members import FORGET_S, LIVE_S, Members


def test_an_agent_that_responds_is_there_until_it_stops() -> None:
    members = Members("me")
    members.set_seeds(["a:1", "b:1"], 0.0)
    assert members.live(0.0) == {} and members.awaited(0.0) == {"a:1", "b:1"}
    members.responded("a:1", "A", 1.0)
    members.unreachable("b:1", 1.0, refused=False)
    assert members.live(1.0) == {"A": "a:1"} and members.awaited(1.0) == {"a:1"}
    assert members.live(1.0 + LIVE_S) == {}
    members.responded("a:1", "A", 19.0)
    assert members.unreachable("a:1", 20.0, refused=False) == ""  # it may be busy
    assert members.live(20.0) == {"A": "a:1"}
    assert members.unreachable("a:1", 20.0, refused=True) == "A"
    assert members.live(20.0) == {}


def test_an_agent_that_does_not_respond_for_long_is_gone() -> None:
    members = Members("me")
    members.responded("a:1", "A", 0.0)
    assert members.unreachable("a:1", LIVE_S - 1.0, refused=False) == ""
    assert members.unreachable("a:1", LIVE_S, refused=False) == "A"


def test_an_agent_that_is_started_again_is_another() -> None:
    members = Members("me")
    assert members.responded("a:1", "A", 0.0) == ""
    assert members.responded("a:1", "A", 1.0) == ""
    assert members.responded("a:1", "B", 2.0) == "A"
    assert members.live(2.0) == {"B": "a:1"}


def test_an_agent_with_two_addresses_is_one() -> None:
    members = Members("me")
    members.responded("a:1", "A", 0.0)
    members.responded("localhost:1", "A", 0.0)
    assert members.live(0.0) == {"A": "a:1"}


def test_ones_own_address_is_no_peer() -> None:
    members = Members("me")
    members.set_seeds(["a:1", "b:1"], 0.0)
    members.responded("a:1", "me", 0.0)
    assert members.addresses() == ["b:1"] and members.live(0.0) == {}


def test_an_address_that_was_only_named_and_never_responds_is_forgotten() -> None:
    members = Members("me")
    members.set_seeds(["a:1"], 0.0)
    assert members.add("b:1", 0.0) and not members.add("b:1", 1.0)
    for address in ("a:1", "b:1"):
        members.unreachable(address, FORGET_S, refused=True)
    assert members.addresses() == ["a:1"]
