"""Which ticket leaves a full queue, by each organization's share of requests and bytes."""

from __future__ import annotations

import pytest

from hotplate.serving.gateway.queue.fairness import FairQueue
from hotplate.serving.gateway.queue.overflow import STALE_MOST, Overflow
from hotplate.serving.gateway.queue.service_time import ServiceTime
from hotplate.serving.gateway.queue.ticket import Ticket


class Full:
    """A queue of four requests and 1000 bytes with these organizations' tickets."""

    def __init__(self, *organizations: str, size: int = 1, limit: int = 4) -> None:
        self.queue: FairQueue[str] = FairQueue(ServiceTime())
        self.overflow = Overflow(self.queue, limit, 1000)
        self.number = 0
        for organization in organizations:
            self.join(self.ticket(organization, size=size))

    def ticket(self, organization: str, *, size: int = 1, priority: int = 3) -> Ticket[str]:
        self.number += 1
        made = Ticket(organization, 0.0, 60.0, 60.0, size, True, organization, priority)
        made.number, made.ends_at = self.number, 60.0 + self.number
        return made

    def join(self, ticket: Ticket[str]) -> None:
        self.queue.join(ticket)
        if self.overflow.is_tracking:
            self.overflow.note_growth(ticket.organization)

    def pushed_out(self, organization: str, **changes: int) -> str | None:
        found = self.overflow.to_push_out(self.ticket(organization, **changes))
        return found.waiter if found else None


@pytest.mark.parametrize(
    ("waiting", "comes", "leaves"),
    [
        ("aaaa", "a", None),
        ("aaaa", "b", "a"),
        ("aaab", "b", "a"),
        ("aabb", "a", None),
        ("aabb", "c", "b"),  # of equal ones the last
        ("abbb", "c", "b"),
        ("abcd", "e", None),
        ("aabc", "d", "a"),
        ("aabc", "b", None),  # two would push each other out for ever
    ],
)
def test_the_one_most_above_its_share_makes_room(
    waiting: str, comes: str, leaves: str | None
) -> None:
    assert Full(*waiting).pushed_out(comes) == leaves


def test_a_share_is_by_weight() -> None:
    full = Full(*"aaab")
    full.queue.set_weights({"a": 3.0})
    assert full.pushed_out("b") is None
    assert full.pushed_out("c") is None
    full.queue.set_weights({"b": 3.0})
    assert full.pushed_out("b") == "a"


def test_bytes_count_like_requests() -> None:
    full = Full("a", size=900, limit=100)
    full.join(full.ticket("b", size=10))
    assert full.pushed_out("b", size=100) == "a"
    assert full.pushed_out("b", size=890) is None, "it would fill as much"
    assert full.pushed_out("a", size=100) is None


@pytest.mark.parametrize(("priority", "leaves"), [(2, "a"), (3, None), (4, None)])
def test_within_an_organization_the_less_urgent_makes_room(
    priority: int, leaves: str | None
) -> None:
    assert Full(*"aaaa").pushed_out("a", priority=priority) == leaves


def test_what_leaves_is_the_last_of_its_organization() -> None:
    full = Full(*"aaaa")
    waiting = list(full.queue)
    assert full.overflow.to_push_out(full.ticket("b")) is waiting[-1]


def test_shares_are_followed_while_the_queue_stays_full() -> None:
    full = Full(*"aaaaabb", limit=7)
    assert not full.overflow.is_tracking
    assert full.pushed_out("c") == "a"
    assert full.overflow.is_tracking
    for _ in range(5):
        full.join(full.ticket("b"))
    assert full.pushed_out("c") == "b", "it has seven now"
    for each in list(full.queue):
        if each.organization == "b":
            full.queue.leave(each)
    assert full.pushed_out("c") == "a"
    for each in list(full.queue):
        full.queue.leave(each)
    assert full.pushed_out("c") is None


def test_what_is_followed_does_not_pile_up() -> None:
    full = Full(*"ab", limit=2)
    full.pushed_out("c")
    for _ in range(2 * 2 + STALE_MOST - 2):
        full.overflow.note_growth("a")
        assert full.overflow.is_tracking
    full.overflow.note_growth("a")
    assert not full.overflow.is_tracking


def test_one_that_fills_its_share_is_refused_whoever_fills_more() -> None:
    full = Full("a", "a")
    for _ in range(2):
        full.join(full.ticket("b", size=450))
    assert full.pushed_out("a") is None
    assert full.pushed_out("c") == "b"


@pytest.mark.parametrize(
    ("limit", "size", "leaves"), [(1, 900, None), (2, 900, "a"), (0, 0, None), (0, 900, None)]
)
def test_of_a_queue_for_one_request_it_fills_all(limit: int, size: int, leaves: str | None) -> None:
    assert Full("a", size=size, limit=limit).pushed_out("b", size=50) == leaves
