from __future__ import annotations

from hotplate.cache.tiers.huge_pages import SLOW_S_PER_BYTE, SMALL_PARTS, HugePages

PART = 8 << 20


def test_huge_pages_are_taken_as_long_as_they_come_quickly() -> None:
    pages = HugePages()
    for _ in range(3):
        assert pages.huge()
        pages.took(0.9 * SLOW_S_PER_BYTE * PART, PART)


def test_after_slow_ones_small_pages_are_taken_for_a_while() -> None:
    pages = HugePages()
    assert pages.huge()
    pages.took(1.1 * SLOW_S_PER_BYTE * PART, PART)
    assert [pages.huge() for _ in range(SMALL_PARTS)] == [False] * SMALL_PARTS
    assert pages.huge()
