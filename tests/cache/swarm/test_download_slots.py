"""How many chunks are asked for and sent at a time, apart for each kind."""

from __future__ import annotations

import pytest

from hotplate.cache.swarm.assignment import HERE, ORIGIN, Assignment
from hotplate.cache.swarm.download_slots import (
    SPARE_PRESSING,
    SPARE_SMALL,
    TRANSFERS,
    WAITS,
    DownloadSlots,
)

FROM_ORIGIN = Assignment(0, ORIGIN, "")
FROM_PEER = Assignment(0, "a", "")
WAITING = Assignment(0, "a", "", waits=True)
FROM_DISK = Assignment(0, HERE, "")


def free(slots: DownloadSlots, *, small: bool = False, pressing: bool = False) -> list[bool]:
    origin = slots.origin_free(small=small, pressing=pressing)
    return [origin, slots.peers_free, slots.waits_free]


@pytest.mark.parametrize(
    ("step", "most", "kind"), [(FROM_ORIGIN, 3, 0), (FROM_PEER, TRANSFERS, 1), (WAITING, WAITS, 2)]
)
def test_each_kind_of_request_has_slots_of_its_own(step: Assignment, most: int, kind: int) -> None:
    slots = DownloadSlots(3)
    for _ in range(most):
        assert free(slots) == [True] * 3
        slots.begin(step)
    assert free(slots) == [number != kind for number in range(3)]
    slots.end(step)
    assert free(slots) == [True] * 3


@pytest.mark.parametrize(
    ("small", "pressing", "spare"),
    [
        (False, False, 0),
        (False, True, SPARE_PRESSING),
        (True, False, SPARE_SMALL),
        (True, True, SPARE_SMALL),
    ],
)
def test_the_origin_is_asked_for_more_where_it_matters(
    small: bool, pressing: bool, spare: int
) -> None:
    slots, begun = DownloadSlots(3), 0
    while slots.origin_free(small=small, pressing=pressing):
        slots.begin(FROM_ORIGIN)
        begun += 1
    assert begun == 3 + spare


def test_a_copy_on_disk_takes_no_slot() -> None:
    slots = DownloadSlots(1)
    for _ in range(20):
        slots.begin(FROM_DISK)
    assert free(slots) == [True] * 3
