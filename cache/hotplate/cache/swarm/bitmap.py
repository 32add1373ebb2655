"""Chunks as bits of a number: chunk i is bit i."""

from __future__ import annotations

import itertools
from collections.abc import Iterator


def bits(bitmap: int) -> Iterator[int]:
    """The numbers of the bits that are set, the lowest first."""
    while bitmap:
        yield (bitmap & -bitmap).bit_length() - 1
        bitmap &= bitmap - 1


def first(bitmap: int, count: int) -> int:
    """The `count` lowest bits that are set, or all where there are fewer."""
    return sum(1 << index for index in itertools.islice(bits(bitmap), count))
