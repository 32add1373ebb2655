"""Whose ticket is next, by the slot time that each organization has used."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from hotplate.serving.gateway.queue.fairness import (
    COMPARED,
    COST_WEIGHT,
    REMEMBERED,
    USUAL_COST_S,
    FairQueue,
)
from hotplate.serving.gateway.queue.service_time import ServiceTime
from hotplate.serving.gateway.queue.ticket import Ticket


class Fair:
    """A fair queue, and the tickets of organizations that are called by one letter."""

    def __init__(self, organizations: str = "", **weights: float) -> None:
        self.service = ServiceTime()
        self.queue: FairQueue[str] = FairQueue(self.service)
        self.queue.set_weights(weights)
        self.number = 0
        self.join(organizations)

    def ticket(self, organization: str, size: int = 1) -> Ticket[str]:
        self.number += 1
        made = Ticket(organization, 0.0, 60.0, 60.0, size, True, organization)
        made.number, made.ends_at = self.number, 60.0
        return made

    def join(self, organizations: str) -> None:
        for organization in organizations:
            self.queue.join(self.ticket(organization))

    def take(self) -> Ticket[str]:
        ticket = self.queue.take(0.0)
        self.queue.charge(ticket)
        return ticket

    def order(self, count: int = 99) -> str:
        """The organizations of the next tickets, each of which gets a slot and keeps it."""
        return "".join(self.take().waiter for _ in range(min(count, self.queue.count)))

    def tags(self) -> dict[str, float]:
        return {flow.name: flow.tag for flow in self.queue.flows}


def test_organizations_take_turns_whoever_came_first() -> None:
    fair = Fair("aaabbbc")
    assert (fair.queue.count, fair.queue.contested) == (7, True)
    assert "".join(ticket.waiter for ticket in fair.queue) == "abcabab"
    assert fair.order() == "abcabab"
    assert fair.queue.count == 0
    assert not fair.queue.waiting


def test_alone_nothing_is_charged() -> None:
    fair = Fair("aa")
    assert not fair.queue.contested
    first = fair.take()
    fair.queue.settle(first, 9.0, typical=True)
    (flow,) = fair.queue.flows
    assert (flow.tag, flow.cost_s, flow.running) == (0.0, USUAL_COST_S, 0)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [({}, (20, 20)), ({"a": 3.0}, (30, 10)), ({"b": 3.0}, (10, 30)), ({"a": 0.25}, (8, 32))],
)
def test_turns_go_by_weight(weights: dict[str, float], expected: tuple[int, int]) -> None:
    fair = Fair("a" * 40 + "b" * 40, **weights)
    assert fair.queue.waiting_weight == weights.get("a", 1.0) + weights.get("b", 1.0)
    listed = Counter(ticket.waiter for ticket in list(fair.queue)[:40])
    got = Counter(fair.order(40))
    for counts in (listed, got):
        assert counts["a"] == pytest.approx(expected[0], abs=1)
        assert counts["b"] == pytest.approx(expected[1], abs=1)


@pytest.mark.parametrize("seed", range(4))
def test_the_next_one_is_of_an_organization_that_has_used_least(seed: int) -> None:
    rng = random.Random(seed)
    fair = Fair(b=2.0, c=0.5)
    for _ in range(20):
        fair.join("".join(rng.choices("abcdef", k=rng.randrange(400))))
        running = []
        for _ in range(rng.randrange(fair.queue.count + 1)):
            least = min(flow.tag for flow in fair.queue.waiting)
            listed, ticket = next(iter(fair.queue)), fair.queue.take(0.0)
            assert listed.flow is not None and ticket.flow is not None
            assert listed.flow.tag == ticket.flow.tag == least
            fair.queue.charge(ticket)
            running.append(ticket)
        for ticket in running:
            fair.queue.settle(ticket, rng.choice((0.0, 0.5, 3.0)), typical=rng.random() < 0.3)


@pytest.mark.parametrize(
    ("slot_s", "begins"), [(5 * USUAL_COST_S, "bbbba"), (USUAL_COST_S, "abab"), (0.0, "ab")]
)
def test_a_request_that_took_longer_or_less_is_settled(slot_s: float, begins: str) -> None:
    fair = Fair("aaaabbbbbbbbb")
    first = fair.take()
    assert first.waiter == "a"
    assert fair.take().waiter == "b"
    fair.queue.settle(first, slot_s, typical=False)
    assert fair.tags() == {"a": slot_s, "b": USUAL_COST_S}
    assert fair.order().startswith(begins)


@pytest.mark.parametrize("typical", [True, False])
def test_an_organization_is_charged_what_its_requests_usually_take(typical: bool) -> None:
    fair = Fair("aabb")
    fair.queue.settle(fair.take(), 11.0 * USUAL_COST_S, typical=typical)
    costs = {flow.name: flow.cost_s for flow in fair.queue.flows}
    learnt = USUAL_COST_S * (1 + 10 * COST_WEIGHT)
    assert costs == {"a": pytest.approx(learnt if typical else USUAL_COST_S), "b": USUAL_COST_S}


def test_a_new_organization_is_charged_what_requests_here_usually_take() -> None:
    fair = Fair()
    for _ in range(20):
        fair.service.learn(4.0, 4.0, 0.0)
    fair.join("ab")
    assert [flow.cost_s for flow in fair.queue.flows] == [4.0, 4.0]


def test_the_first_ones_cost_is_what_is_known_when_another_one_comes() -> None:
    fair = Fair("a")
    for _ in range(20):
        fair.service.learn(4.0, 4.0, 0.0)
    fair.join("b")
    assert [flow.cost_s for flow in fair.queue.flows] == [4.0, 4.0]


def test_an_organization_that_comes_back_has_saved_up_one_request_at_most() -> None:
    fair = Fair("ab" + "a" * 20)
    assert fair.order(2) == "ab"
    assert fair.order(10) == "a" * 10
    fair.join("b" * 9)
    assert fair.order(4) in ("bbab", "baba", "bbba")
    assert fair.tags()["b"] > 8.0 * USUAL_COST_S


@pytest.mark.parametrize(
    ("weight", "waits", "used"),
    [(1.0, True, 8.0), (2.0, True, 8.5), (0.5, True, 7.0), (1.0, False, 9.0), (2.0, False, 9.0)],
)
def test_it_has_saved_up_the_time_of_one_request(weight: float, waits: bool, used: float) -> None:
    """The other one had nine turns meanwhile. Where it does not wait, that request is charged."""
    fair = Fair("ab" + "b" * 9, a=weight)
    fair.order()
    if waits:
        fair.join("a")
    else:
        fair.queue.charge(fair.ticket("a"))
    assert fair.tags() == {"a": used, "b": 10.0}


def test_an_organization_loses_nothing_by_being_in_service_as_a_slot_comes_free() -> None:
    fair = Fair("ab")
    fair.order()
    fair.join("ab")
    tags = fair.tags()
    assert tags["a"] == tags["b"] == USUAL_COST_S


def test_with_a_new_contest_all_begin_equal() -> None:
    fair = Fair("ab" + "a" * 20)
    fair.order()
    tickets = fair.tags()
    assert tickets["a"] > tickets["b"] + 10
    fair.queue.end_contest()
    fair.join("aabb")
    assert fair.order() == "abab"


def test_what_ends_after_its_contest_is_not_charged_again() -> None:
    fair = Fair("ab")
    first = fair.take()
    fair.take()
    fair.queue.end_contest()
    fair.join("aabb")
    fair.queue.settle(first, 50.0, typical=False)
    assert fair.order() == "abab"


def test_what_began_without_a_contest_is_not_charged() -> None:
    fair = Fair("aa")
    first, _ = fair.take(), fair.take()
    fair.join("b")
    fair.take()
    fair.queue.end_contest()
    fair.queue.settle(first, 50.0, typical=False)
    assert fair.tags() == {"a": 0.0, "b": USUAL_COST_S}


def test_a_ticket_that_was_given_back_goes_before_all_others_the_newest_first() -> None:
    fair = Fair("aabb")
    first, second = fair.take(), fair.take()
    for ticket in (first, second):
        fair.queue.settle(ticket, 0.0, typical=False)
        fair.queue.requeue(ticket)
    assert fair.queue.count == 4
    assert list(fair.queue)[:2] == [second, first]
    fair.queue.grow(second, 5)
    assert second.size_bytes == 6
    assert [flow.queued_bytes for flow in fair.queue.waiting] == [1, 1]
    assert fair.queue.take(0.0) is second
    fair.queue.leave(first)
    assert fair.queue.count == 2


def test_bytes_and_weights_of_what_waits_are_counted() -> None:
    empty = FairQueue[str](ServiceTime())
    assert (empty.count, empty.contested, empty.waiting_weight) == (0, False, 0.0)
    fair = Fair(a=2.0)
    first, second = fair.ticket("a", 10), fair.ticket("a", 20)
    fair.queue.join(first)
    fair.queue.join(second)
    fair.queue.grow(first, 5)
    (flow,) = fair.queue.waiting
    assert (flow.queued_bytes, fair.queue.waiting_weight) == (35, 2.0)
    fair.join("b")
    assert fair.queue.waiting_weight == 3.0
    fair.queue.set_weights({"b": 5.0})
    assert fair.queue.waiting_weight == 6.0
    fair.queue.leave(first)
    assert flow.queued_bytes == 20
    fair.queue.leave(second)
    assert (flow.queued_bytes, fair.queue.waiting_weight) == (0, 5.0)
    fair.order()
    assert fair.queue.waiting_weight == 0.0


@pytest.mark.parametrize(
    ("waiting", "weights", "ahead"),
    [
        ("", {}, 0),
        ("bbb", {}, 0),
        ("aaa", {}, 3),
        ("abbb", {}, 2),
        ("aabbb", {}, 4),
        ("aabbbccc", {}, 6),
        ("aabbb", {"b": 2.0}, 5),
        ("aabbb", {"a": 2.0}, 3),
        ("aabbb", {"a": 4.0}, 2.5),
    ],
)
def test_at_least_so_many_go_before_one_that_comes(
    waiting: str, weights: dict[str, float], ahead: float
) -> None:
    fair = Fair(waiting, **weights)
    assert fair.queue.ahead(fair.ticket("a")) == ahead


def test_of_very_many_organizations_some_are_looked_at() -> None:
    fair = Fair("aa")
    for number in range(COMPARED + 9):
        ticket = fair.ticket(f"other {number}")
        fair.queue.join(ticket)
    assert fair.queue.ahead(fair.ticket("a")) == 2 + COMPARED + 9
    less = Fair("a", a=4.0)
    for number in range(COMPARED + 9):
        less.queue.join(less.ticket(f"other {number}"))
    assert less.queue.ahead(less.ticket("a")) == 1 + (COMPARED + 9) / 4


def test_organizations_without_a_request_are_forgotten_when_there_are_too_many() -> None:
    fair = Fair()
    sizes = []
    for number in range(2 * REMEMBERED):
        ticket = fair.ticket(str(number))
        fair.queue.join(ticket)
        fair.queue.leave(ticket)
        sizes.append(fair.queue.known_flows)
    kept = REMEMBERED // 2
    upwards = list(range(kept + 1, REMEMBERED + 1))
    assert sizes == [*range(1, kept + 1), *upwards, *upwards, *upwards]


@pytest.mark.parametrize("contest_has_ended", [False, True])
def test_those_are_forgotten_first_that_used_least_in_this_contest(
    contest_has_ended: bool,
) -> None:
    fair = Fair("ar")
    fair.queue.settle(fair.take(), 11.0 * USUAL_COST_S, typical=True)
    assert fair.take().waiter == "r"
    fair.join("w")
    if contest_has_ended:
        fair.queue.end_contest()
    for number in range(REMEMBERED):
        ticket = fair.ticket(str(number))
        fair.queue.join(ticket)
        fair.queue.leave(ticket)
    assert set(fair.tags()) == {"r", "w"}, "one runs and one waits, so both are known"
    fair.join("a")
    (cost_s,) = (flow.cost_s for flow in fair.queue.flows if flow.name == "a")
    learnt_s = USUAL_COST_S * (1 + 10 * COST_WEIGHT)
    assert cost_s == pytest.approx(USUAL_COST_S if contest_has_ended else learnt_s)
