"""Which replica's slot is next, while replicas come, go, are ejected and have others' requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from hotplate.serving.gateway.protocol.routes import ReplicaRoute
from hotplate.serving.gateway.queue.replica_slots import Replica, Slots


def route(name: str, concurrency: int = 1, **changes: Any) -> ReplicaRoute:
    return replace(ReplicaRoute(name, "127.0.0.1:1", concurrency), **changes)


def slots_of(*table: ReplicaRoute) -> Slots:
    slots = Slots()
    slots.update(table)
    return slots


def taken(slots: Slots, count: int = 99) -> list[Replica]:
    found: list[Replica] = []
    while len(found) < count and (replica := slots.take()) is not None:
        found.append(replica)
    return found


def ids(replicas: Sequence[Replica]) -> str:
    return "".join(replica.id for replica in replicas)


def test_the_next_request_goes_where_most_slots_are_free_for_longest() -> None:
    slots = Slots()
    assert (slots.total, slots.ready, slots.any_free, slots.take()) == (0, False, False, None)
    assert slots.most_free() is None
    slots.update([route("a", 1), route("b", 3), route("c", 2)])
    assert (slots.total, slots.ready, slots.any_free) == (6, True, True)
    got = taken(slots)
    assert ids(got) == "bcbacb"
    assert not slots.any_free
    assert slots.most_free() is not None, "a request without a slot goes somewhere"
    b, c = got[0], got[1]
    slots.release(c)
    assert slots.any_free
    slots.release(b)
    assert slots.most_free() is c
    slots.release(b)
    assert slots.most_free() is b
    assert ids(taken(slots)) == "bcb"


def test_a_replica_that_is_not_named_gets_nothing_and_goes_with_its_last_slot() -> None:
    slots = slots_of(route("a", 2), route("b", 2))
    a, _, again, _ = taken(slots)
    assert a is again
    slots.update([route("b", 2)])
    assert (slots.total, len(slots.replicas)) == (2, 2)
    slots.release(a)
    assert (len(slots.replicas), slots.any_free) == (2, False)
    slots.release(a)
    assert ids(list(slots.replicas)) == "b"
    slots.update([])
    assert (slots.ready, slots.total) == (False, 0)
    assert len(slots.replicas) == 1, "its requests go on"


def test_a_replica_that_comes_back_is_itself() -> None:
    slots = slots_of(route("a", 2))
    (a,) = taken(slots, 1)
    slots.update([])
    assert a.gone and not a.open
    slots.update([route("a", 2)])
    assert not a.gone and a.open
    assert ids(taken(slots)) == "a"
    slots.release(a)
    slots.release(a)
    assert ids(list(slots.replicas)) == "a"


@pytest.mark.parametrize("changes", [{"draining": True}, {"concurrency": 0}])
def test_a_replica_that_drains_or_has_no_slot_is_not_open(changes: dict[str, int]) -> None:
    slots = slots_of(route("a", **{"concurrency": 2, **changes}))
    assert (slots.ready, slots.total, slots.take()) == (False, 0, None)
    assert slots.most_free() is None


def test_what_needs_no_slot_goes_to_no_replica_that_drains() -> None:
    slots = slots_of(route("a"))
    taken(slots)
    assert slots.most_free() is not None
    slots.update([route("a", draining=True)])
    assert slots.most_free() is None


def test_slots_of_other_gateways_requests_are_not_free() -> None:
    slots = slots_of(route("a", 3, foreign=3))
    (a,) = slots.replicas
    assert not a.stalled, "its responses are not known here"
    slots.update([route("a", 3, foreign=1)])
    (a, _) = taken(slots)
    assert a.free == 0
    slots.update([route("a", 3, foreign=3)])
    assert a.free == -2
    slots.release(a)
    assert slots.take() is None
    slots.release(a)
    assert slots.take() is None
    slots.update([route("a", 3, foreign=2)])
    assert len(taken(slots)) == 1


def test_an_ejected_replica_gets_nothing_until_it_is_restored() -> None:
    slots = slots_of(route("a", 2), route("b"))
    (a,) = taken(slots, 1)
    slots.eject("a", "HTTP 503")
    slots.eject("unknown", "it is not here")
    assert a.ejection_reason == "HTTP 503"
    assert ids(taken(slots)) == "b"
    slots.release(a)
    assert not slots.any_free
    slots.restore("a")
    assert ids(taken(slots)) == "aa"


def test_a_lowered_concurrency_is_reached_as_slots_come_back() -> None:
    slots = slots_of(route("a", 3))
    a, _, _ = taken(slots)
    slots.update([route("a", 1)])
    assert a.free == -2
    for free in (-1, 0):
        slots.release(a)
        assert (a.free, slots.any_free) == (free, False)
    slots.release(a)
    assert slots.any_free
    slots.update([route("a", 5)])
    assert len(taken(slots)) == 5


@pytest.mark.parametrize(
    ("taken_count", "responding", "ejected", "stalled"),
    [
        (2, 2, False, True),
        (2, 1, False, False),
        (1, 1, False, False),
        (0, 0, False, False),
        (2, 2, True, False),
    ],
)
def test_a_replica_is_stalled_while_each_slots_response_goes_on(
    taken_count: int, responding: int, ejected: bool, stalled: bool
) -> None:
    slots = slots_of(route("a", 2))
    taken(slots, taken_count)
    (a,) = slots.replicas
    a.responding = responding
    if ejected:
        slots.eject("a", "HTTP 503")
    assert a.stalled is stalled


def test_a_slot_is_handed_over_where_no_other_is_free() -> None:
    slots = slots_of(route("a"), route("b"))
    a, b = taken(slots)
    assert slots.can_hand_over(a)
    slots.release(b)
    assert not slots.can_hand_over(a), "b is next"
    taken(slots)
    slots.update([route("a", foreign=1), route("b")])
    assert not slots.can_hand_over(a)
    assert slots.can_hand_over(b)
    slots.eject("b", "HTTP 503")
    assert not slots.can_hand_over(b)
    slots.update([route("b", learns=True)])
    slots.restore("b")
    assert not slots.can_hand_over(b), "its limit may change"


def test_a_limit_that_is_learnt_says_how_many_slots_there_are() -> None:
    slots = slots_of(route("a", 4, learns=True), route("b", 2))
    a, b = slots.replicas
    assert (a.concurrency, a.adaptive is not None, b.adaptive) == (4, True, None)
    assert list(slots.learning) == [a]
    assert a.adaptive is not None
    a.adaptive.limit = 7
    slots.resize(a)
    slots.resize(b)
    assert (a.concurrency, slots.total) == (7, 9)
    assert len(taken(slots)) == 9
    slots.update([route("a", 4, learns=True, draining=True)])
    assert (a.concurrency, list(slots.learning)) == (7, [])
    slots.update([route("a", 4)])
    assert a.concurrency == 4
    assert not list(slots.learning)
