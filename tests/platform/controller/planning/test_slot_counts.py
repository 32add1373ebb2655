"""What of slots the controller knows: from replicas, from gateways, from before a restart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hotplate.platform.controller.planning.slot_counts import SlotCounts
from hotplate.platform.controller.planning.workloads import Service
from hotplate.serving.gateway.protocol.routes import RouteDemand
from tests.support.control_plane.situations import replica, service

TOLD = {"concurrency": None, "learns": "async methods", "batch": 0, "only_tasks": False}


def of(revision: int = 1, *, tasks: bool = False) -> Service:
    made = service(revision)
    return replace(made, workload=replace(made.workload, config={}), has_tasks=tasks)


def there(name: str, told: dict[str, Any] | None = None) -> Any:
    return replace(replica(name), self_report=told)


def test_nobody_is_told_before_a_replica_has_said_what_it_has() -> None:
    counts = SlotCounts()
    assert counts.update([of()], [there("a")], [], "") == []
    news = counts.update([of()], [there("a", TOLD)], [], "")
    assert news == [
        "service 'Echo': 32 slots, learnt (async methods; traffic.concurrency is not set)"
    ]
    assert counts.update([of()], [there("a", TOLD)], [], "") == []


def test_each_replica_has_its_number_and_new_ones_that_of_the_others() -> None:
    counts, demand = SlotCounts(), RouteDemand(learnt={"a": 4, "b": 8, "c": 8})
    replicas = [there(name, TOLD) for name in "abcd"]
    counts.update([of()], replicas, [demand], "")
    assert [counts.number(each, of()) for each in replicas] == [4, 8, 8, 8]
    assert counts.of(of()).number == 8
    counts.update([of()], replicas, [], "")
    assert counts.of(of()).number == 8, "while no gateway is there"


def test_routes_change_only_where_a_number_is_far_from_what_they_say() -> None:
    counts = SlotCounts()

    def routed(*learnt: int) -> int:
        demands = [RouteDemand(learnt={"a": number}) for number in learnt]
        counts.update([of()], [there("a", TOLD)], demands, "")
        return counts.initial(there("a"), of())

    assert [routed(32), routed(36), routed(40), routed(30), routed(41)] == [32, 32, 32, 32, 41]
    assert [routed(1), routed(2), routed()] == [1, 2, 2]
    assert counts.number(there("a"), of()) == 2
    counts.update([of()], [], [], "")
    assert counts.initial(there("a"), of()) == 2, "as a new one begins"


def test_a_label_is_news_and_counts_at_once() -> None:
    counts = SlotCounts()
    counts.update([of()], [there("a", TOLD)], [RouteDemand(learnt={"a": 4})], "")
    news = counts.update([of()], [there("a", TOLD)], [RouteDemand(learnt={"a": 4})], "6")
    assert news == ["service 'Echo': 6 slots, label (hotplate/concurrency)"]
    assert counts.number(there("a"), of()) == 6


def test_it_is_remembered_per_revision() -> None:
    counts = SlotCounts()
    counts.update([of()], [there("a", TOLD)], [RouteDemand(learnt={"a": 4})], "")
    memory = {"slots": counts.memory(of().workload.key)}

    after = SlotCounts()
    after.restore(of(), memory)
    assert after.of(of()).number == 4
    assert after.update([of()], [], [], "") == [], "somebody was told before"
    after.restore(of(2), memory)
    assert after.of(of(2)).number == 32, "another revision is other code"


def test_a_memory_that_is_nothing_of_the_kind_is_none() -> None:
    for kept in (None, 7, {}, {"revision": 1, "told": 5}, {"revision": 1, "told": {"x": 1}}):
        counts = SlotCounts()
        counts.restore(of(), {"slots": kept})
        assert counts.memory(of().workload.key) is None


def test_tasks_count_by_their_own_slots() -> None:
    counts = SlotCounts()
    counts.update([of(tasks=True)], [there("a", TOLD)], [], "")
    requests = RouteDemand(in_flight=32, queued=8)
    assert counts.load(of(tasks=True), requests, RouteDemand(in_flight=1)) == (32, requests)
    tasks = RouteDemand(in_flight=1, queued=2)
    assert counts.load(of(tasks=True), requests, tasks) == (1, tasks)
    assert counts.load(of(), requests, tasks) == (32, requests)
    assert counts.load(of(tasks=True), None, tasks) == (32, None)


@pytest.mark.parametrize("number", [0, -1, "7", None, 7])
def test_a_stored_number_counts_if_it_is_one(number: object) -> None:
    stored = {"revision": 1, "told": TOLD, "number": number, "said": ""}
    counts = SlotCounts()
    counts.restore(of(), {"slots": stored})
    memory = counts.memory(of().workload.key)
    assert memory is not None
    assert memory["number"] == (7 if number == 7 else 0)


def test_what_was_announced_is_saved_once() -> None:
    counts, known = SlotCounts(), of().workload.key
    assert counts.is_saved(known)
    counts.update([of()], [there("a", TOLD)], [], "")
    assert not counts.is_saved(known)
    counts.memory(known)
    assert counts.is_saved(known)


def test_what_is_known_of_other_revisions_is_forgotten() -> None:
    counts = SlotCounts()
    counts.update([of()], [there("a", TOLD)], [RouteDemand(learnt={"a": 4})], "")
    counts.forget([1, 2])
    assert counts.of(of()).number == 4
    assert not counts.is_saved(of().workload.key)
    counts.forget([2])
    assert counts.memory(of().workload.key) is None
    assert counts.is_saved(of().workload.key)
    assert counts.of(of()).number == SlotCounts().of(of()).number


def test_what_a_replica_reported_stays_after_it_is_stored_memory_or_not() -> None:
    counts = SlotCounts()
    counts.update([of()], [there("a", TOLD)], [RouteDemand(learnt={"a": 4})], "")
    counts.restore(of(), {"slots": {"revision": 1, "told": TOLD, "number": 9, "said": ""}})
    assert counts.of(of()).number == 4


def test_the_learnt_number_in_routes_may_be_a_quarter_off() -> None:
    counts = SlotCounts()
    for learnt, routed in ((100, 100), (80, 100), (125, 100), (126, 126), (100, 100)):
        counts.update([of()], [there("a", TOLD)], [RouteDemand(learnt={"a": learnt})], "")
        assert counts.initial(there("a"), of()) == routed, learnt
