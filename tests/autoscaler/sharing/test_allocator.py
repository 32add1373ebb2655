"""Grants over time are what `allocate` says at each moment, and whoever is touched is told of."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hotplate.autoscaler.sharing.allocation import AllocationRequest, Quota, allocate
from hotplate.autoscaler.sharing.allocator import Allocator
from hotplate.autoscaler.sharing.amounts import UNLIMITED, Amounts

ONE_GPU = Amounts(gpus=1, replicas=1)


def test_a_random_life_agrees_with_share_and_names_whoever_gets_another_number() -> None:
    rng, quotas = Random(7), {"a": Quota(UNLIMITED._replace(replicas=5)), "b": Quota(weight=2)}
    shares = Allocator[int](quotas, UNLIMITED._replace(gpus=9))
    requests: dict[int, AllocationRequest[int]] = {}
    got: dict[int, int] = {}
    short = 0
    for _ in range(600):
        key = rng.randrange(8)
        if rng.random() < 0.2:
            shares.withdraw(key)
            requests.pop(key, None)
            got.pop(key, None)
        else:
            each = rng.choice((ONE_GPU, Amounts(cpus=1, replicas=1)))
            request = AllocationRequest(
                key, "abc"[key % 3], each, rng.randrange(5), running=rng.randrange(3)
            )
            shares.request(request)
            requests[key] = request
        affected = shares.affected()
        expected = allocate(list(requests.values()), quotas, UNLIMITED._replace(gpus=9))
        for name in requests:
            grant = shares.allocation(name)
            assert grant == expected[name]
            assert name in affected | {key} or grant.replicas == got[name]
            got[name] = grant.replicas
            short += bool(grant.cause)
        assert shares.affected() == set()
    assert short > 100


def test_shares_that_are_worked_out_once_for_many_wishes_are_those_of_one_after_another() -> None:
    rng, capacity = Random(3), UNLIMITED._replace(gpus=9)
    quotas = {"a": Quota(UNLIMITED._replace(replicas=5)), "b": Quota(weight=2)}
    at_once, in_turn = Allocator[int](quotas, capacity), Allocator[int](quotas, capacity)
    requests = {key: AllocationRequest(key, "abc"[key % 3], ONE_GPU, 0) for key in range(12)}
    short = 0
    for _ in range(200):
        for key in rng.sample(range(12), rng.randint(1, 12)):
            wanted = rng.randrange(5)
            kept, running = rng.randint(0, wanted), rng.randrange(3)
            requests[key] = replace(requests[key], wanted=wanted, kept=kept, running=running)
        for request in requests.values():
            at_once.request(request)
        at_once.settle()
        granted = {key: at_once.allocation(key) for key in requests}
        assert at_once.affected() == set()
        for key, request in requests.items():
            in_turn.request(request)
            in_turn.allocation(key)
        assert {
            key: in_turn.allocation(key) for key in in_turn.affected() | set(requests)
        } == granted
        assert granted == allocate(list(requests.values()), quotas, capacity)
        short += any(grant.cause for grant in granted.values())
    assert short > 100


def test_a_grant_holds_until_another_one_wants_more_than_it_has() -> None:
    shares = Allocator[str]({}, UNLIMITED._replace(gpus=4))
    for name in "ab":
        shares.request(AllocationRequest(name, name, ONE_GPU, 4))
    assert [shares.allocation(name).replicas for name in "ab"] == [2, 2]
    shares.request(AllocationRequest("a", "a", ONE_GPU, 1))
    shares.request(AllocationRequest("c", "c", ONE_GPU, 0))
    assert [shares.allocation(name).replicas for name in "abc"] == [1, 2, 0]
    assert shares.affected() == {"b"}
    assert shares.allocation("b").replicas == 3
    shares.request(AllocationRequest("c", "c", ONE_GPU, 4))
    assert shares.allocation("b").replicas == 3
    assert shares.allocation("c").replicas == 1
    assert shares.affected() == {"b"}
    assert shares.allocation("b").replicas == 2


def test_what_is_stated_again_changes_nothing_and_a_larger_quota_gives_more() -> None:
    shares = Allocator[str]({"a": Quota(UNLIMITED._replace(gpus=1))})
    shares.request(AllocationRequest("a", "a", ONE_GPU, 3))
    assert shares.allocation("a").replicas == 1
    shares.request(AllocationRequest("a", "a", ONE_GPU, 3))
    assert shares.affected() == set()
    shares.set_limits({"a": Quota(UNLIMITED._replace(gpus=2))}, UNLIMITED)
    assert shares.affected() == {"a"}
    assert shares.allocation("a").replicas == 2
    shares.set_limits({}, UNLIMITED)
    assert shares.affected() == {"a"}
    assert shares.allocation("a").replicas == 3


def test_it_is_scarce_no_longer_than_somebody_asks_for_too_much() -> None:
    shares = Allocator[str]({"b": Quota(UNLIMITED._replace(gpus=2))}, UNLIMITED._replace(gpus=4))
    shares.request(AllocationRequest("a", "a", ONE_GPU, 4))
    assert not shares.scarce
    shares.request(AllocationRequest("b", "b", ONE_GPU, 1))
    assert shares.scarce
    shares.request(AllocationRequest("a", "a", ONE_GPU, 3))
    assert not shares.scarce
    shares.request(AllocationRequest("c", "c", ONE_GPU, 1))
    shares.withdraw("c")
    assert not shares.scarce
    shares.withdraw("a")
    shares.request(AllocationRequest("b", "b", ONE_GPU, 3))
    assert shares.scarce, "its quota is 2"
    shares.request(AllocationRequest("b", "b", ONE_GPU, 2))
    assert not shares.scarce


def test_a_service_that_is_gone_is_not_affected() -> None:
    shares = Allocator[str]({}, UNLIMITED._replace(gpus=4))
    for name in "ab":
        shares.request(AllocationRequest(name, name, ONE_GPU, 4))
    assert [shares.allocation(name).replicas for name in "ab"] == [2, 2]
    shares.request(AllocationRequest("a", "a", ONE_GPU, 1))
    shares.settle()
    shares.withdraw("b")
    assert shares.affected() == {"a"}


def test_more_room_counts_what_was_asked_before() -> None:
    shares = Allocator[str]({}, UNLIMITED._replace(gpus=1))
    shares.request(AllocationRequest("a", "a", ONE_GPU, 3))
    shares.set_limits({}, UNLIMITED._replace(gpus=3))
    assert not shares.scarce
    shares.set_limits({}, UNLIMITED._replace(gpus=2))
    assert shares.allocation("a").replicas == 2
