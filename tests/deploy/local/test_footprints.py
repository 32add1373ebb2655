"""What one more replica of a service is expected to take."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from hotplate.deploy.local.footprints import FRESH_S, SERVICES_KEPT, Footprints, MemoryReading
from hotplate.deploy.local.runtime import Warm
from hotplate.deploy.process.memory import Memory
from hotplate.deploy.workload import WorkloadKey

MIB = 1 << 20
KEY = WorkloadKey("acme", "a", 1, "Echo")
WARM = Warm("e", ("python",), {}, {})


def reading(
    own_mib: int, alone_mib: int = 0, ready_for_s: float = 0.0, *, forked: bool = False
) -> MemoryReading:
    memory = Memory(own_mib * MIB, (alone_mib or own_mib) * MIB)
    return MemoryReading(memory, ready_for_s, WARM if forked else None, forked)


def own_mib(footprints: Footprints, key: WorkloadKey = KEY) -> float:
    footprint = footprints.of(key)
    assert footprint is not None
    return footprint.own_bytes / MIB


def test_a_service_of_which_nothing_was_read_has_none() -> None:
    footprints = Footprints()
    footprints.note({KEY: []})
    assert footprints.of(KEY) is None


def test_it_is_the_mean_of_the_forks_if_there_are_any_and_all_say_what_one_takes_alone() -> None:
    footprints = Footprints()
    forks = [reading(10, 110, forked=True), reading(30, 130, forked=True)]
    footprints.note({KEY: [reading(90), *forks]})
    footprint = footprints.of(KEY)
    assert footprint is not None
    assert (footprint.own_bytes, footprint.alone_bytes) == (20 * MIB, 110 * MIB)
    assert footprint.warm == WARM
    footprints.note({KEY: [reading(90)]})
    assert own_mib(footprints) == 90
    assert footprints.of(KEY).warm == WARM  # type: ignore[union-attr]  # it has one


def test_one_that_has_just_ended_says_nothing() -> None:
    footprints = Footprints()
    footprints.note({KEY: [reading(30)]})
    footprints.note({KEY: [reading(0)]})
    assert own_mib(footprints) == 30


def test_it_is_that_of_all_revisions_and_of_no_other_service() -> None:
    footprints = Footprints()
    footprints.note({KEY: [reading(10)], replace_revision(2): [reading(30)]})
    assert own_mib(footprints) == 20
    assert own_mib(footprints, replace_revision(3)) == 20
    for other in (
        replace(KEY, organization="other"),
        replace(KEY, deployment="b"),
        replace(KEY, service="Other"),
    ):
        assert footprints.of(other) is None


def replace_revision(number: int) -> WorkloadKey:
    return replace(KEY, revision=number)


def test_it_grows_at_once_and_shrinks_only_by_much() -> None:
    footprints = Footprints()
    seen = []
    for mib in (100, 101, 99, 76, 75, 60, 56):
        footprints.note({KEY: [reading(mib)]})
        seen.append(own_mib(footprints))
    assert seen == [100, 101, 101, 101, 75, 75, 56]


def test_what_a_replica_has_gathered_over_time_is_not_expected_of_the_next() -> None:
    footprints = Footprints()
    footprints.note({KEY: [reading(100, ready_for_s=FRESH_S - 1)]})
    footprints.note({KEY: [reading(9000, ready_for_s=FRESH_S)]})
    assert own_mib(footprints) == 100


def test_alone_is_never_less_than_its_own() -> None:
    footprints = Footprints()
    footprints.note({KEY: [reading(40, 30)]})
    footprint = footprints.of(KEY)
    assert footprint is not None and footprint.alone_bytes == 40 * MIB


def test_the_service_that_was_read_least_recently_is_forgotten() -> None:
    footprints = Footprints()
    keys = [replace(KEY, deployment=f"d{number}") for number in range(SERVICES_KEPT)]
    for key in (*keys, keys[0], replace(KEY, deployment="more")):
        footprints.note({key: [reading(1)]})
    assert footprints.of(keys[0]) is not None
    assert footprints.of(keys[1]) is None


def test_what_is_known_comes_back() -> None:
    footprints = Footprints()
    footprints.note({KEY: [reading(10, 110, forked=True)]})
    again = Footprints(json.loads(json.dumps(footprints.to_json())))
    footprint = again.of(KEY)
    assert footprint is not None
    assert (footprint.own_bytes, footprint.alone_bytes) == (10 * MIB, 110 * MIB)
    assert footprint.warm is None
    again.note({KEY: [reading(9)]})
    assert own_mib(again) == 10, "it is as steady as if it had not been away"


@pytest.mark.parametrize("kept", [[1], [["a", "b", "c", 1]], [["a", "b", "c", "x", 1]], 7])
def test_what_is_no_footprint_is_refused(kept: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        Footprints(kept)
