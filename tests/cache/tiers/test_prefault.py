from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hotplate.cache.tiers import arena as arenas
from hotplate.cache.tiers.arena import Arena, huge_mount
from hotplate.cache.tiers.huge_pages import HugePages
from hotplate.cache.tiers.mapped_file import MappedFile
from hotplate.cache.tiers.prefault import Prefault

MIB = 1 << 20


def until(holds: Callable[[], bool]) -> None:
    while not holds():
        time.sleep(0.001)  # noqa: TID251  (a thread makes it true, and the test has a time limit)


def used_bytes(memory: MappedFile) -> int:
    return os.fstat(memory.file.fd).st_blocks * 512


def test_so_much_is_ready_and_no_more() -> None:
    spare = Prefault(MappedFile("spare", 64 * MIB), 6 * MIB)
    until(lambda: spare.ready_bytes == 6 * MIB)
    memory = spare.take()
    assert memory is not None and used_bytes(memory) == 6 * MIB
    assert spare.take() is None and spare.ready_bytes == 0
    memory.close()


@pytest.mark.parametrize("mounted", [False, True])
def test_the_first_large_file_gets_what_is_ready_and_takes_the_rest_itself(
    mounted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arenas, "LARGE_BYTES", 4 * MIB)
    mount = huge_mount(tmp_path) if mounted else None
    arena = Arena(32 * MIB, mount, spare_bytes=6 * MIB)
    until(lambda: arena.ready_bytes == 6 * MIB)
    small = arena.allocate("small", MIB)
    assert arena.ready_bytes == 6 * MIB
    region = arena.allocate("large", 9 * MIB + 5)
    assert arena.ready_bytes == 0 and len(region.view) == 9 * MIB + 5
    region.reserve(8 * MIB, MIB + 5)
    region.view[:] = os.urandom(len(region.view))
    fd = region.lend()
    assert os.stat(fd).st_size == 9 * MIB + 5
    assert os.pread(fd, len(region.view), 0) == bytes(region.view)
    os.close(fd)
    for one in (small, region):
        arena.release(one)
    assert arena.used_bytes == 0


def test_a_file_smaller_than_what_is_ready_gives_the_rest_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arenas, "LARGE_BYTES", 4 * MIB)
    arena = Arena(32 * MIB, spare_bytes=16 * MIB)
    until(lambda: arena.ready_bytes == 16 * MIB)
    region = arena.allocate("large", 5 * MIB)
    fd = region.lend()
    assert os.stat(fd).st_blocks * 512 == 5 * MIB
    os.close(fd)
    arena.release(region)


def test_spare_memory_goes_before_the_limit_is_broken() -> None:
    arena = Arena(8 * MIB, spare_bytes=6 * MIB)
    until(lambda: arena.ready_bytes == 6 * MIB)
    region = arena.allocate("small", 3 * MIB)
    assert arena.ready_bytes == 0
    arena.release(region)


def test_small_pages_are_taken_where_huge_ones_are_slow(tmp_path: Path) -> None:
    pages = HugePages()
    pages.took(1.0, MIB)
    memory = MappedFile("memory", 4 * MIB, huge_mount(tmp_path))
    memory.reserve(0, MIB, pages)
    assert used_bytes(memory) == MIB  # a huge one would take twice as much
    memory.view[:MIB] = os.urandom(MIB)
    memory.close()
