"""Who fits on the machine."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hotplate.deploy.local.placement import (
    DEFAULT_MEMORY_BYTES,
    Applicant,
    Capacity,
    Expected,
    Place,
    place,
    sum_of,
)
from hotplate.deploy.workload import Resources, WorkloadKey

GIB = 1 << 30
NEVER = "ask for less, or use a larger machine"
A = WorkloadKey("acme", "a", 1, "A")
B = WorkloadKey("acme", "b", 1, "B")


def applicant(name: str, since: float = 0.0, **amounts: Any) -> Applicant:
    amounts.setdefault("memory_bytes", GIB)
    return Applicant(name, A, Resources(**amounts), since)


def test_what_the_machine_does_not_have_is_said() -> None:
    capacity = Capacity(cpus=2, memory_bytes=4 * GIB)
    waiting = place(
        [applicant("g", gpus=1), applicant("c", cpus=4), applicant("m", memory_bytes=8 * GIB)],
        [],
        capacity,
    ).waiting
    assert waiting == {
        "g": f"needs 1 GPU: this machine has 0; {NEVER}",
        "c": f"needs 4.0 CPUs: this machine has 2.0; {NEVER}",
        "m": f"needs 8.0 GiB of memory: this machine has 4.0; {NEVER}",
    }


def test_who_holds_what_is_missing_is_said() -> None:
    capacity = Capacity(cpus=4, memory_bytes=64 * GIB, gpus=(0, 1))
    taken = [Place(A, 2.0, GIB, (0,), 1.0), Place(A, 1.0, GIB), Place(B, 0.0, GIB, (1,), 0.5)]
    waiting = place([applicant("x", cpus=2, gpus=2)], taken, capacity).waiting
    assert waiting["x"] == (
        "needs 2 GPUs: 2 of 2 are taken by acme/a@1/A (1 replica), acme/b@1/B (1 replica); "
        "2.0 CPUs: 3.0 of 4.0 are taken by acme/a@1/A (2 replicas); it waits for room"
    )


def test_what_others_have_is_not_named() -> None:
    theirs = [Place(replace(A, organization=name), 1.0, GIB) for name in ("rival", "other")]
    capacity = Capacity(cpus=3, memory_bytes=64 * GIB)
    waiting = place([applicant("x", cpus=2)], [*theirs, Place(B, 1.0, GIB)], capacity).waiting
    assert waiting["x"] == (
        "needs 2.0 CPUs: 3.0 of 3.0 are taken by other organizations (2 replicas), "
        "acme/b@1/B (1 replica); it waits for room"
    )


def test_shared_cpus_are_promised_several_times_and_to_one_replica_no_more_than_there_are() -> None:
    capacity = Capacity(cpus=2, memory_bytes=64 * GIB, cpu_overcommit=2.5)
    wanted = [applicant(str(n), n, cpus=cpus) for n, cpus in enumerate([2, 2, 1, 0, 1, 3])]
    outcome = place(wanted, [], capacity)
    assert list(outcome.placed) == ["0", "1", "2", "3"]
    assert outcome.waiting == {
        "4": "needs 1.0 CPUs: 5.0 of 5.0 (2.5 times this machine's, cpu_overcommit) are taken by "
        "acme/a@1/A (3 replicas); it waits for room",
        "5": f"needs 3.0 CPUs: this machine has 2.0; {NEVER}",
    }


def test_memory_that_model_files_have_is_told() -> None:
    capacity = Capacity(cpus=4, memory_bytes=7 * GIB, arena_bytes=8 * GIB)
    wanted = Applicant("x", A, Resources(memory_bytes=12 * GIB), 0)
    assert place([wanted], [], capacity).waiting["x"] == (
        "needs 12.0 GiB of memory: this machine has 7.0 beside the 8.0 for model files "
        "(arena_bytes); ask for less, or use a larger machine"
    )


def test_the_oldest_goes_first_and_does_not_hold_up_a_smaller_one() -> None:
    capacity = Capacity(cpus=4, memory_bytes=64 * GIB)
    outcome = place(
        [applicant("young", 3, cpus=2), applicant("old", 1, cpus=3), applicant("mid", 2, cpus=1)],
        [],
        capacity,
    )
    assert list(outcome.placed) == ["old", "mid"]
    assert list(outcome.waiting) == ["young"]


def test_shares_of_a_gpu_are_packed_and_whole_ones_are_exclusive() -> None:
    capacity = Capacity(cpus=0, memory_bytes=64 * GIB, gpus=(0, 1, 2))
    names = [("half", 0.5), ("third", 0.3), ("other-half", 0.5), ("whole", 1), ("late", 1)]
    outcome = place(
        [applicant(name, since, gpus=share) for since, (name, share) in enumerate(names)],
        [],
        capacity,
    )
    gpus = {name: found.gpus for name, found in outcome.placed.items()}
    assert gpus == {"half": (0,), "third": (0,), "other-half": (1,), "whole": (2,)}
    assert outcome.waiting["late"].startswith("needs 1 GPU: 3 of 3 are taken")


def test_ten_tenths_fit_on_one_gpu() -> None:
    capacity = Capacity(cpus=0, memory_bytes=64 * GIB, gpus=(0,))
    outcome = place([applicant(str(n), gpus=0.1) for n in range(11)], [], capacity)
    assert len(outcome.placed) == 10


def test_no_request_counts_no_cpu_and_the_default_memory() -> None:
    capacity = Capacity(cpus=0, memory_bytes=2 * DEFAULT_MEMORY_BYTES)
    outcome = place([Applicant(str(n), A, Resources(), n) for n in range(3)], [], capacity)
    assert list(outcome.placed) == ["0", "1"]


amounts = st.builds(
    Resources,
    cpus=st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0, 3.0]),
    memory_bytes=st.sampled_from([0, GIB // 2, GIB, 3 * GIB]),
    gpus=st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.7, 1.0, 2.0]),
)


@given(
    st.lists(st.lists(amounts, max_size=5), max_size=4),
    st.builds(
        Capacity,
        cpus=st.sampled_from([0.0, 1.0, 2.5, 8.0]),
        memory_bytes=st.sampled_from([GIB, 4 * GIB, 16 * GIB]),
        gpus=st.sampled_from([(), (0,), (0, 1, 2), (3, 5)]),
        cpu_overcommit=st.sampled_from([1.0, 1.5, 4.0]),
    ),
)
def test_nothing_is_promised_twice_and_nothing_is_held_back(
    rounds: list[list[Resources]], capacity: Capacity
) -> None:
    held: list[Place] = []
    for number, wanted in enumerate(rounds):
        applicants = [Applicant(f"{number}-{n}", A, each, n) for n, each in enumerate(wanted)]
        outcome = place(applicants, held, capacity)
        assert outcome.placed.keys() | outcome.waiting.keys() == {each.id for each in applicants}
        held += outcome.placed.values()

        total = sum_of(held)
        assert total.cpus <= capacity.promised_cpus + 1e-6
        assert all(one.cpus <= capacity.cpus + 1e-6 for one in held)
        assert total.memory_bytes <= capacity.memory_bytes
        shares: dict[int, list[float]] = defaultdict(list)
        for one in held:
            for gpu in one.gpus:
                shares[gpu].append(one.gpu_share)
        assert shares.keys() <= set(capacity.gpus)
        assert all(sum(on_one) <= 1 + 1e-6 for on_one in shares.values())

        for each in applicants:
            if found := outcome.placed.get(each.id):
                assert sum_of([found]).gpus == each.resources.gpus
            else:
                assert not place([each], held, capacity).placed


def unasking(name: str, since: float, expected: Expected) -> Applicant:
    return Applicant(name, A, Resources(), since, expected)


def test_a_replica_that_asks_for_no_memory_is_counted_with_what_is_expected_of_it() -> None:
    expected = Expected(alone_bytes=3 * GIB)
    found = place(
        [unasking("a", 0.0, expected), unasking("b", 1.0, expected)],
        [],
        Capacity(cpus=1, memory_bytes=5 * GIB),
    )
    assert found.placed["a"].memory_bytes == 3 * GIB
    assert found.waiting["b"].startswith("needs 3.0 GiB of memory: 3.0 of 5.0 are taken by a")


def test_what_is_asked_for_is_promised_whatever_is_expected() -> None:
    one = replace(applicant("a"), expected=Expected(alone_bytes=3 * GIB, forked_bytes=1))
    found = place([one], [], Capacity(cpus=1, memory_bytes=GIB), warm_bytes=GIB)
    assert found.placed["a"].memory_bytes == GIB


def test_a_fork_is_counted_as_one_only_while_what_is_warm_may_stay() -> None:
    expected = Expected(alone_bytes=4 * GIB, forked_bytes=GIB)
    capacity = Capacity(cpus=1, memory_bytes=5 * GIB)
    forks = [unasking(str(number), number, expected) for number in range(4)]
    found = place(forks, [], capacity, warm_bytes=2 * GIB)
    assert [found.placed[name].memory_bytes for name in "012"] == [GIB] * 3
    assert found.waiting["3"].startswith("needs 4.0 GiB of memory: 3.0 of 5.0 are taken")
    assert not place(forks, [], capacity, warm_bytes=4 * GIB + 1, measured=False).placed
    alone = place(forks, [], capacity, warm_bytes=4 * GIB + 1)
    assert alone.placed["0"].memory_bytes == 4 * GIB, "the template gives way"
    assert set(alone.waiting) == set("123")
