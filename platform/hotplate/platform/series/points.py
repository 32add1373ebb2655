"""What is kept of one step of time, by the names of its figures; pure.

A `Point` has what is not zero; a figure that is not known is not there either, and `known` tells
the two apart. Points of one subject that follow each other are `merged`, those of several subjects
at one time are taken `together`.

    requests, errors, refused   that ended in it; errors are 5xx of replicas and those that died
    in_flight, queued           the most at once
    cold_starts                 replicas that became ready
    wait_s.N, first_byte_s.N, answer_s.N    how many were in bucket N of `BOUNDS_S`
    replica_s.USE, gpu_s.USE    seconds of replicas, and of their GPUs, by USE
    wanted_s, ready_s, draining_s           seconds of replicas by state
    cpu_s, memory_bytes         of their control groups
    gpu_share_s, gpu_known_s    how much of the GPUs' time they worked, of how much that is known
    gpu_memory_bytes            the most
    cost                        of the replicas that have a price
    seen_s                      how long the step was looked at
    awake                       1 = at its end there was something still, 0 = it sleeps since
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

Point: TypeAlias = dict[str, float]

USES: Final = ("busy", "idle", "starting")
"""What a replica's seconds are spent for: a slot is taken, none is, it is not ready yet."""
TIMES: Final = ("wait_s", "first_byte_s", "answer_s")
_MOST: Final = frozenset({"in_flight", "queued", "memory_bytes", "gpu_memory_bytes"})
"""Of points that follow each other the largest counts; all others are added."""
_AWAKE: Final = "awake"
_SEEN: Final = "seen_s"
_DIGITS: Final = 4


def merged(points: Iterable[Point]) -> Point:
    """Points of one subject that follow each other, as one."""
    whole: Point = {}
    for point in points:
        for name, value in point.items():
            if name == _AWAKE:
                whole[name] = value
            elif name in _MOST:
                whole[name] = max(whole.get(name, 0), value)
            else:
                whole[name] = whole.get(name, 0) + value
    return whole


def together(points: Iterable[Point]) -> Point:
    """Points of several subjects at one time, as one. Of the most at once it has the sum, which
    they need not have had in one instant."""
    whole: Point = {}
    for point in points:
        for name, value in point.items():
            if name in (_AWAKE, _SEEN):
                whole[name] = max(whole.get(name, 0), value)
            else:
                whole[name] = whole.get(name, 0) + value
    return whole


def rounded(point: Point) -> Point:
    """What is kept of it: whole numbers as such, without what is zero."""
    kept: Point = {_AWAKE: point.get(_AWAKE, 0)}
    for name, value in point.items():
        value = round(value, _DIGITS)
        if value or name in ("cpu_s", "memory_bytes", "cost", "gpu_share_s", "gpu_memory_bytes"):
            kept[name] = int(value) if value == int(value) else value
    return kept


def bucket(name: str, number: int) -> str:
    """The figure of a bucket of one of `TIMES`."""
    return f"{name}.{number}"
