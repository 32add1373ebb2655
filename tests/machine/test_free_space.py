from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hotplate.cache.errors import NoSpace
from hotplate.cache.tiers.disk import DiskTier
from hotplate.machine.free_space import RESERVE_MAX_BYTES, FreeSpace
from tests.support.small_disk import MIB, fill, small_disk

DIGEST = "c" * 64


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path, 10 * MIB) as folder:
        yield folder


def test_what_would_eat_into_the_reserve_is_refused_with_the_figures(disk: Path) -> None:
    room = FreeSpace(disk / "not" / "made" / "yet", reserve_bytes=4 * MIB)
    assert room.refusal(6 * MIB) == ""
    assert room.refusal(7 * MIB) == (
        f"the disk of {room.folder} is full: 7 MiB more are needed and 10 MiB are free, of which "
        "4 MiB are kept free (disk_reserve_bytes); free some space"
    )


def test_a_twentieth_of_a_disk_is_kept_free_and_a_gibibyte_at_most(disk: Path) -> None:
    room = FreeSpace(disk)
    assert room.refusal(9 * MIB + MIB // 2) == ""
    assert "are kept free" in room.refusal(9 * MIB + MIB // 2 + 1)
    assert RESERVE_MAX_BYTES == 1 << 30


def test_a_shortage_is_told_while_it_lasts(disk: Path) -> None:
    room = FreeSpace(disk)
    assert room.shortage == ""
    filler = fill(disk)
    assert f"the disk of {disk} has 0 bytes free" in room.shortage
    assert "free some space" in room.shortage
    filler.unlink()
    assert room.shortage == ""


def test_the_disk_tier_leaves_the_reserve_alone(disk: Path) -> None:
    tier = DiskTier(disk / "tier", reserve_bytes=4 * MIB)
    with pytest.raises(NoSpace):
        tier.reserve(7 * MIB)
    assert list(tier.root.iterdir()) == []
