"""Grants: quotas hold, what there is is given out, by priority and weight, and losers know why."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from hotplate.autoscaler.sharing.allocation import Allocation, AllocationRequest, Quota, allocate
from hotplate.autoscaler.sharing.allocator import Allocator
from hotplate.autoscaler.sharing.amounts import GIB, UNLIMITED, Amounts, total

ONE_GPU = Amounts(gpus=1, replicas=1)


def gpus(limit: float) -> Amounts:
    return UNLIMITED._replace(gpus=limit)


LIMITS = (0, 1, 2, 3, 5, 8, math.inf)


def some_limit(rng: Random) -> Amounts:
    return Amounts(rng.choice(LIMITS), rng.choice(LIMITS), math.inf, rng.choice(LIMITS))


def some_quotas(rng: Random) -> dict[str, Quota]:
    weights = (0.5, 1.0, 2.0, 3.0)
    return {
        n: Quota(some_limit(rng), weight=rng.choice(weights)) for n in "abc" if rng.random() < 0.7
    }


def some_requests(rng: Random) -> list[AllocationRequest[str]]:
    found = []
    for number in range(rng.randint(1, 8)):
        wanted = rng.randint(0, 6)
        found.append(
            AllocationRequest(
                str(number),
                rng.choice("abc"),
                Amounts(rng.choice((0, 0.5, 1, 2)), rng.choice((0, 1, 2)), GIB, 1),
                wanted,
                kept=rng.randint(0, wanted),
                running=rng.randint(0, 6),
                replacing=rng.random() < 0.5,
                priority=rng.randint(2, 4),
            )
        )
    return found


def test_no_quota_is_exceeded_and_nothing_that_is_wanted_is_left_over() -> None:
    causes = Counter[str]()
    for seed in range(1000):
        rng = Random(seed)
        requested, quotas, capacity = some_requests(rng), some_quotas(rng), some_limit(rng)
        granted = allocate(requested, quotas, capacity)
        used: dict[str, Amounts] = defaultdict(Amounts)
        for request in requested:
            grant = granted[request.key]
            assert 0 <= grant.replicas <= request.wanted
            used[request.organization] = used[request.organization].plus(
                request.each, grant.replicas
            )
        for name, total_of_organization in used.items():
            assert total_of_organization.within(quotas.get(name, Quota()).limit)
        placed = [a for a in requested if a.each.within(capacity)]
        in_all = total((request.each, granted[request.key].replicas) for request in placed)
        assert in_all.within(capacity)
        for request in requested:
            grant = granted[request.key]
            causes[grant.cause] += 1
            assert bool(grant.reason) == bool(grant.cause) == (grant.replicas < request.wanted)
            if grant.cause == "quota":
                limit = quotas[request.organization].limit
                assert not used[request.organization].plus(request.each).within(limit)
            elif grant.cause == "capacity":
                assert not in_all.plus(request.each).within(capacity)
        assert allocate(requested, quotas, capacity) == granted
    assert min(causes["quota"], causes["capacity"], causes[""]) > 500


def test_a_lower_priority_takes_nothing_from_a_higher_one() -> None:
    # What is scarce is judged by all that is asked for; with one resource there is one judgement.
    for seed in range(300):
        rng = Random(seed)
        requested = [replace(request, each=ONE_GPU) for request in some_requests(rng)]
        quotas = {name: Quota(gpus(rng.choice(LIMITS)), priority=0) for name in "abc"}
        there = gpus(rng.choice(LIMITS))
        alone = allocate([request for request in requested if request.priority == 2], quotas, there)
        beside = allocate(requested, quotas, there)
        assert all(beside[key].replicas == grant.replicas for key, grant in alone.items())


def test_how_urgent_an_organization_says_it_is_takes_nothing_from_the_others() -> None:
    for seed in range(300):
        rng = Random(seed)
        usual = [
            replace(request, each=ONE_GPU, running=0, priority=3) for request in some_requests(rng)
        ]
        there = gpus(rng.choice(LIMITS))
        amount_text = [replace(request, priority=rng.randint(0, 3)) for request in usual]
        before, after = by_organization(usual, there), by_organization(amount_text, there)
        # Between organizations that have equally much, the service that is next decides.
        assert all(abs(before[name] - after[name]) <= 1 for name in "abc")
        inside = [request for request in amount_text if request.organization == "a"]
        granted = allocate(inside, {}, there)
        for request in inside:
            if granted[request.key].replicas < request.wanted:
                later = [other for other in inside if other.priority > request.priority]
                assert all(granted[other.key].replicas == 0 for other in later)


def by_organization(requested: list[AllocationRequest[str]], there: Amounts) -> Counter[str]:
    got = Counter[str]()
    for key, grant in allocate(requested, {"b": Quota(weight=2)}, there).items():
        got[next(request.organization for request in requested if request.key == key)] += (
            grant.replicas
        )
    return got


def test_an_organization_goes_before_others_as_far_as_its_quota_says() -> None:
    requested = [
        AllocationRequest("loud", "a", ONE_GPU, 4, priority=0),
        AllocationRequest("quiet", "b", ONE_GPU, 4),
    ]
    granted = allocate(requested, {}, gpus(4))
    assert [granted[key].replicas for key in ("loud", "quiet")] == [2, 2]
    assert granted["loud"].reason.endswith(
        "gets 2 GPUs at priority 3, the most urgent that its quota allows, and weight 1"
    )
    granted = allocate(requested, {"a": Quota(priority=2)}, gpus(4))
    assert [granted[key].replicas for key in ("loud", "quiet")] == [4, 0]
    modest = [replace(requested[0], priority=7), requested[1]]
    assert [grant.replicas for grant in allocate(modest, {}, gpus(4)).values()] == [0, 4]


def test_nobody_could_have_more_without_taking_it_from_one_with_less_for_its_weight() -> None:
    losers = 0
    for seed in range(500):
        rng = Random(seed)
        quotas = {name: Quota(weight=rng.randint(1, 4)) for name in "abcd"[: rng.randint(2, 4)]}
        requested = [AllocationRequest(name, name, ONE_GPU, rng.randint(0, 20)) for name in quotas]
        granted = allocate(requested, quotas, gpus(rng.randint(0, 20)))
        for request in requested:
            got = granted[request.key].replicas
            if got == request.wanted:
                continue
            losers += 1
            for name, quota in quotas.items():
                its = granted[name].replicas
                assert (
                    not its or (its - 1) / quota.weight <= got / quotas[request.key].weight + 1e-9
                )
    assert losers > 100


def test_equal_organizations_get_equal_parts_however_many_services_they_have() -> None:
    requested = [
        AllocationRequest("lone", "a", ONE_GPU, 9),
        *(AllocationRequest(f"b{n}", "b", ONE_GPU, 9) for n in range(3)),
    ]
    granted = allocate(requested, {}, gpus(12))
    assert granted["lone"].replicas == 6
    assert [granted[f"b{n}"].replicas for n in range(3)] == [2, 2, 2]


def test_what_one_does_not_want_the_others_have() -> None:
    requested = [
        AllocationRequest("a", "a", ONE_GPU, 1),
        AllocationRequest("b", "b", ONE_GPU, 9),
        AllocationRequest("c", "c", ONE_GPU, 9),
    ]
    granted = allocate(requested, {"b": Quota(weight=2)}, gpus(7))
    assert [granted[key].replicas for key in "abc"] == [1, 4, 2]


def test_idle_replicas_give_way_to_needed_ones_and_equals_keep_what_they_have() -> None:
    idle = AllocationRequest("idle", "a", ONE_GPU, 1, kept=1, running=1)
    busy = AllocationRequest("busy", "a", ONE_GPU, 1, running=1)
    fresh = AllocationRequest("fresh", "a", ONE_GPU, 1)
    assert allocate([idle, fresh], {}, gpus(1))["fresh"].replicas == 1
    assert allocate([fresh, busy], {}, gpus(1))["busy"].replicas == 1
    other = AllocationRequest("fresh", "b", ONE_GPU, 1)
    assert allocate([other, busy], {}, gpus(1))["busy"].replicas == 1


def test_a_new_revision_that_takes_over_goes_before_the_one_that_it_replaces() -> None:
    old = AllocationRequest("old", "a", ONE_GPU, 2)
    new = AllocationRequest("new", "a", ONE_GPU, 2, running=2, replacing=True)
    granted = allocate([old, new], {"a": Quota(gpus(2))}, UNLIMITED)
    assert (granted["old"].replicas, granted["new"].replicas) == (1, 1)
    granted = allocate([old, new], {"a": Quota(gpus(1))}, UNLIMITED)
    assert (granted["old"].replicas, granted["new"].replicas) == (0, 1)
    both_gone = [old, replace(new, running=0)]
    assert allocate(both_gone, {"a": Quota(gpus(1))}, UNLIMITED)["new"].replicas == 1
    holder = AllocationRequest("holder", "a", ONE_GPU, 1, running=1)
    assert allocate([replace(new, running=0), holder], {}, gpus(1))["holder"].replicas == 1


def test_gpus_count_where_they_are_scarce_and_else_the_scarcest() -> None:
    large = AllocationRequest("large", "a", Amounts(gpus=2, cpus=1, replicas=1), 4)
    small = AllocationRequest("small", "b", Amounts(gpus=1, cpus=8, replicas=1), 4)
    by_gpu = allocate([large, small], {}, Amounts(4, 1000, math.inf, math.inf))
    assert (by_gpu["large"].replicas, by_gpu["small"].replicas) == (1, 2)
    by_cpu = allocate([large, small], {}, Amounts(1000, 18, math.inf, math.inf))
    assert (by_cpu["large"].replicas, by_cpu["small"].replicas) == (4, 1)


def test_what_fits_on_no_machine_is_left_to_the_engine_and_holds_up_nobody() -> None:
    giant = AllocationRequest("giant", "a", Amounts(gpus=8, replicas=1), 1)
    usual = AllocationRequest("usual", "b", ONE_GPU, 4)
    granted = allocate([giant, usual], {}, gpus(4))
    assert granted == {"giant": Allocation(1), "usual": Allocation(4)}


def test_who_gets_less_is_told_why_in_one_sentence() -> None:
    requested = [AllocationRequest("a", "a", ONE_GPU, 6), AllocationRequest("b", "b", ONE_GPU, 6)]
    granted = allocate(requested, {"a": Quota(gpus(2)), "b": Quota(weight=2)}, gpus(6))
    assert granted["a"] == Allocation(
        2, "2 of 6 granted: organization 'a' has a quota of 2 GPUs and wants 6 GPUs", "quota"
    )
    assert granted["b"] == Allocation(
        4,
        "4 of 6 granted: 12 GPUs are wanted and 6 GPUs can be promised; organization 'b' gets 4 "
        "GPUs at priority 3 and weight 2",
        "capacity",
    )


def test_more_to_give_is_never_less_for_an_organization_of_equal_services() -> None:
    requested = [AllocationRequest(name, name, ONE_GPU, 7) for name in "abc"]
    got = [
        [allocate(requested, {"b": Quota(weight=2)}, gpus(there))[name].replicas for name in "abc"]
        for there in range(1, 24)
    ]
    assert all(x <= y for less, more in pairwise(got) for x, y in zip(less, more, strict=True))


@given(
    wants=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 8)), min_size=1, max_size=8),
    one=st.integers(0, 7),
    more=st.integers(1, 5),
    there=st.integers(0, 20),
    weight=st.integers(1, 4),
    quota=st.integers(0, 20),
)
def test_who_needs_more_never_gets_less_and_others_never_more(
    wants: list[tuple[str, int]], one: int, more: int, there: int, weight: int, quota: int
) -> None:
    requested = [
        AllocationRequest(str(n), name, ONE_GPU, wanted) for n, (name, wanted) in enumerate(wants)
    ]
    one %= len(requested)
    quotas = {"a": Quota(gpus(quota)), "b": Quota(weight=weight)}
    before = allocate(requested, quotas, gpus(there))
    requested[one] = replace(requested[one], wanted=requested[one].wanted + more)
    after = allocate(requested, quotas, gpus(there))
    assert after[str(one)].replicas >= before[str(one)].replicas
    others = [request for request in requested if request.key != str(one)]
    assert all(after[request.key].replicas <= before[request.key].replicas for request in others)


def test_what_demand_needs_goes_before_what_an_organization_only_keeps() -> None:
    requested = [
        AllocationRequest("busy", "a", ONE_GPU, 1),
        AllocationRequest("idle", "a", ONE_GPU, 4, kept=4),
        AllocationRequest("other", "b", ONE_GPU, 3),
    ]
    granted = allocate(requested, {}, gpus(4))
    assert [granted[key].replicas for key in ("busy", "idle", "other")] == [1, 0, 3]


def test_inside_an_organization_too_what_is_needed_goes_before_what_is_kept() -> None:
    requested = [
        AllocationRequest("x", "a", ONE_GPU, 3, kept=2),
        AllocationRequest("y", "a", ONE_GPU, 3),
    ]
    granted = allocate(requested, {}, gpus(4))
    assert [granted[key].replicas for key in "xy"] == [1, 3]


def test_a_service_goes_first_for_the_replicas_that_it_has_and_not_for_more() -> None:
    requested = [
        AllocationRequest("new", "a", ONE_GPU, 2),
        AllocationRequest("old", "a", ONE_GPU, 2, running=1),
    ]
    assert [allocate(requested, {}, gpus(1))[key].replicas for key in ("new", "old")] == [0, 1]
    assert [allocate(requested, {}, gpus(3))[key].replicas for key in ("new", "old")] == [2, 1]


def test_where_no_gpu_is_short_a_replica_counts_as_its_share_of_the_scarcest() -> None:
    capacity = Amounts(math.inf, 10, 4 * GIB, math.inf)
    requested = [
        AllocationRequest("large", "a", Amounts(0, 1, GIB, 1), 10),
        AllocationRequest("small", "b", Amounts(0, 1, 0, 1), 10),
    ]
    granted = allocate(requested, {}, capacity)
    assert [granted[key].replicas for key in ("large", "small")] == [3, 7]


def test_what_a_replica_takes_of_the_capacity_may_differ_from_what_its_quota_counts() -> None:
    usual, small = Amounts(memory_bytes=GIB, replicas=1), Amounts(memory_bytes=GIB / 4, replicas=1)
    requests = [
        AllocationRequest("small", "a", usual, 9, takes=small),
        AllocationRequest("usual", "b", usual, 9),
    ]
    capacity = UNLIMITED._replace(memory_bytes=4 * GIB)
    granted = allocate(requests, {}, capacity)
    assert (granted["small"].replicas, granted["usual"].replicas) == (8, 2)
    assert granted["small"].reason == (
        "8 of 9 granted: 11.2 GiB of memory are wanted and 4 GiB of memory can be promised; "
        "organization 'a' gets 2 GiB of memory at priority 3 and weight 1"
    )
    limited = {"a": Quota(UNLIMITED._replace(memory_bytes=3 * GIB))}
    assert allocate(requests[:1], limited, capacity)["small"].replicas == 3
    allocator = Allocator[str]({}, capacity)
    allocator.request(requests[0])
    assert not allocator.scarce
    allocator.request(requests[1])
    assert allocator.scarce
