"""Requests that a gateway asks back: what has begun has, and nothing else will."""

from __future__ import annotations

import os
import tracemalloc

import pytest

from hotplate.serving.replica.inside.patches.begun import BEGUN, RECALLED, take_passed
from hotplate.serving.replica.inside.patches.running import SLOT, Running

ONE, OTHER = b"ffffffffffffffff", b"0123456789abcdef"


def number(each: int) -> bytes:
    return b"%016x" % each


@pytest.fixture(params=[1, 3], ids=["one process", "three processes"])
def processes(request: pytest.FixtureRequest) -> list[Running]:
    """What each process of a replica has."""
    count: int = request.param
    if count == 1:
        return [Running()]
    fd = Running.share(count)
    return [Running(worker, count, os.dup(fd)) for worker in range(1, count + 1)]


def test_what_was_asked_back_does_not_begin_in_any_process(processes: list[Running]) -> None:
    first, last = processes[0].begun, processes[-1].begun
    assert first.recall([ONE, OTHER]) == []
    assert not last.begin(ONE)
    assert not first.begin(OTHER)
    assert last.begin(number(7))


def test_what_has_begun_in_any_process_is_known(processes: list[Running]) -> None:
    first, last = processes[0].begun, processes[-1].begun
    assert last.begin(ONE)
    assert first.recall([OTHER, ONE]) == [ONE]
    assert last.recall([ONE]) == [ONE], "asked again"


def test_slots_are_counted_beside_it(processes: list[Running]) -> None:
    first, last = processes[0], processes[-1]
    assert first.take(SLOT, 1)
    assert first.begun.begin(ONE)
    assert not last.take(SLOT, 1)
    first.give_back(SLOT)
    assert last.take(SLOT, 1)
    assert first.begun.recall([ONE]) == [ONE]


def test_the_newest_are_known(processes: list[Running]) -> None:
    begun = processes[-1].begun
    for each in range(1, BEGUN + 10):
        assert begun.begin(number(each))
    newest = [number(each) for each in range(10, BEGUN + 10)]
    assert processes[0].begun.recall(newest) == newest
    unknown = [number(each) for each in range(10**6, 10**6 + RECALLED)]
    assert processes[0].begun.recall(unknown) == []
    assert not any(map(begun.begin, unknown))


def test_what_is_known_of_those_asked_for_does_not_grow_for_ever(
    processes: list[Running],
) -> None:
    begun = processes[-1].begun
    tracemalloc.start()
    try:
        for first in range(10**6, 10**6 + 40 * RECALLED, RECALLED):
            processes[0].begun.recall(number(each) for each in range(first, first + RECALLED))
            assert begun.begin(number(first + RECALLED))
            assert not begun.begin(number(first))
        assert tracemalloc.get_traced_memory()[0] < 4 << 20, "all together would be 10 MiB"
    finally:
        tracemalloc.stop()


def test_it_is_taken_out_of_the_request() -> None:
    for value, taken in ((ONE, ONE), (b"short", b"")):
        scope = {"headers": [(b"accept", b"*/*"), (b"hotplate-passed", value), (b"host", b"a")]}
        assert take_passed(scope) == taken
        assert scope["headers"] == [(b"accept", b"*/*"), (b"host", b"a")]
    assert take_passed({"headers": [(b"host", b"a")]}) == b""
