"""Which chunks a node fetches from the origin, and when it leaves them to another."""

from __future__ import annotations

import pytest

from hotplate.cache.swarm.origin_fetches import OriginFetches
from hotplate.cache.swarm.participants import LATE_S, Participants, PeerState
from hotplate.cache.swarm.peer_scores import PeerScores
from hotplate.cache.swarm.rendezvous import Rendezvous

NOW = 100.0


class Node:
    """A node and two peers. The chunk 0 is brought by `p`, else by the node, else by `q`; the
    chunk 1 by the node first."""

    def __init__(self) -> None:
        names = (f"m{number}" for number in range(999))
        self.me = next(name for name in names if [*_order(name).around(0)] == ["p", name, "q"])
        self.participants, self.scores = Participants(self.me, 0.0), PeerScores()
        self.fetches = OriginFetches(self.participants, _order(self.me), self.scores)
        self.number = 0
        self.participants.receive("q", PeerState(0), NOW)
        self.hear()

    def hear(self, origin_fetches: int = 0, *, acknowledges: bool = False) -> None:
        """A message of `p`, which knows others than this node does."""
        self.number += 1
        acknowledged = self.participants.last_number if acknowledges else 0
        state = PeerState(0, origin_fetches, 1, 0, self.number, acknowledged)
        self.participants.receive("p", state, NOW)

    def send(self) -> None:
        self.participants.state_for("p", 0, self.fetches.bits, 0)


def _order(me: str) -> Rendezvous:
    order = Rendezvous("key", me)
    order.set(["p", "q"])
    return order


def test_a_fetch_is_announced_until_all_before_have_acknowledged_that() -> None:
    node = Node()
    fetches = node.fetches
    assert fetches.is_ours(1, NOW), "this node comes first"
    assert (fetches.bits, 1 in fetches) == (0, False)
    assert not fetches.is_ours(0, NOW)
    assert (fetches.bits, 0 in fetches) == (0b1, True)
    node.hear(acknowledges=True)
    assert not fetches.is_ours(0, NOW), "that was sent before"
    node.send()
    node.hear(acknowledges=True)
    assert fetches.is_ours(0, NOW)
    fetches.drop(0)
    fetches.begin(0)
    fetches.begin(3)
    assert (fetches.bits, fetches.under_way, 0 in fetches) == (0b1001, 0b1001, False)
    fetches.end(0)
    assert fetches.bits == 0b1000


@pytest.mark.parametrize("why", ["late", "banned"])
def test_one_that_brings_nothing_is_not_asked_for_leave(why: str) -> None:
    node = Node()
    node.hear(origin_fetches=0b1)
    if why == "banned":
        node.scores.ban("p", NOW)
    now = NOW + (LATE_S if why == "late" else 0.0)
    assert node.fetches.is_ours(0, now)
    assert node.fetches.bits == 0
    assert node.fetches.announcer(0, now) is None


@pytest.mark.parametrize(("peer", "withdrawn"), [("p", True), ("q", False)])
def test_who_announces_a_fetch_too_has_it_if_it_comes_first(peer: str, withdrawn: bool) -> None:
    node = Node()
    assert not node.fetches.is_ours(0, NOW)
    node.participants.receive(peer, PeerState(0, 0b10, 1, number=9), NOW)
    node.fetches.yield_to(peer)
    assert 0 in node.fetches, "that is another chunk"
    node.participants.receive(peer, PeerState(0, 0b1, 1, number=10), NOW)
    node.fetches.yield_to(peer)
    assert (0 in node.fetches) is not withdrawn


def test_what_is_kept_up_after_ours_was_acknowledged_stands() -> None:
    node = Node()
    node.hear(origin_fetches=0b10)
    assert node.fetches.announcer(0, NOW) is None
    assert node.fetches.announcer(1, NOW) == "p"
    node.hear()
    assert not node.fetches.is_ours(0, NOW)
    node.hear(origin_fetches=0b1)
    assert node.fetches.announcer(0, NOW) is None, "it does not know of ours"
    assert 0 in node.fetches
    node.send()
    node.hear(origin_fetches=0b1, acknowledges=True)
    assert node.fetches.announcer(0, NOW) == "p"
    assert 0 not in node.fetches, "ours gives way"
