"""Which chunks are due from the origin, and how many at a time."""

from __future__ import annotations

import pytest

from hotplate.cache.swarm.origin_window import WINDOW_FIRST, OriginWindow


@pytest.mark.parametrize(
    ("count", "size"), [(1, 8), (128, 8), (143, 8), (144, 9), (512, 32), (10_000, 32)]
)
def test_a_sixteenth_of_all_chunks_is_on_its_way(count: int, size: int) -> None:
    assert OriginWindow(count).size == size


@pytest.mark.parametrize(
    ("elsewhere", "alone", "chunks", "last"),
    [
        (0, True, 0xFF, 7),
        (0, False, 0b11, 1),
        (0b1, False, 0b110, 2),
        (0b111, False, 0b111_000, 5),
        (0b1010, False, 0b101, 2),
        (0b1010, True, 0b11_1111_0101, 9),
        (0xFF, False, 0xFF00, 15),
        (0x1FF, False, 0xFF << 9, 16),
        (0x3FFFF, False, 0xC0000, 20),  # all that are left
        (0xFFFFF, False, 0, 20),
    ],
)
def test_as_many_are_due_as_have_come_of_the_first_that_are_nowhere_else(
    elsewhere: int, alone: bool, chunks: int, last: int
) -> None:
    assert WINDOW_FIRST == 2
    due = OriginWindow(20).due(elsewhere, alone=alone)
    assert (due.chunks, due.last) == (chunks, last)
    assert last in due
    assert last + 1 not in due
