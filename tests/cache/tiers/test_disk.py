from __future__ import annotations

import os
from pathlib import Path

import pytest

from hotplate.cache.copies.landing import DiskCopy, DiskLanding, check, land
from hotplate.cache.errors import NoSpace
from hotplate.cache.manifest import CHUNK_BYTES, Blob, Draft
from hotplate.cache.tiers.arena import Region
from hotplate.cache.tiers.disk import DiskTier
from tests.support.cache.fakes import blob_of, random_bytes

CONTENT = random_bytes(CHUNK_BYTES + 100, 2)
OTHER = random_bytes(100, 3)
BLOB = blob_of(CONTENT)


@pytest.fixture
def disk(tmp_path: Path) -> DiskTier:
    return DiskTier(tmp_path / "disk")


def start(disk: DiskTier, content: bytes) -> DiskLanding:
    blob = blob_of(content)
    return land(disk, disk.reserve(len(content)), blob.digest, blob)


def store(disk: DiskTier, content: bytes) -> str:
    landing = start(disk, content)
    landing.put(0, memoryview(content))
    landing.keep(blob_of(content).digest)
    return blob_of(content).digest


def right_chunks(landing: DiskLanding, blob: Blob) -> list[int]:
    assert landing.local is not None
    return [index for index in range(len(blob.chunks)) if landing.local.take(index, landing)]


def test_a_landed_blob_is_a_read_only_file_named_by_its_digest(disk: DiskTier) -> None:
    digest = store(disk, CONTENT)
    assert disk.path(digest).read_bytes() == CONTENT
    assert disk.path(digest).stat().st_mode & 0o777 == 0o444
    assert disk.has(digest, len(CONTENT))
    assert right_chunks(check(disk, digest, BLOB), BLOB) == [0, 1]
    assert disk.used_bytes == len(CONTENT)


def test_it_is_lent_before_and_after_it_is_kept(disk: DiskTier) -> None:
    landing = start(disk, CONTENT)
    landing.put(0, memoryview(CONTENT))
    for kept in (False, True):
        if kept:
            landing.keep(BLOB.digest)
        fd = landing.lend()
        assert os.pread(fd, len(CONTENT), 0) == CONTENT
        os.close(fd)


def test_nothing_is_there_before_it_is_kept(disk: DiskTier) -> None:
    landing = start(disk, CONTENT)
    assert not disk.has(BLOB.digest, len(CONTENT))
    assert disk.used_bytes == len(CONTENT), "its room is taken"
    landing.drop()
    assert list(disk.root.iterdir()) == []
    assert disk.used_bytes == 0


@pytest.mark.parametrize("damage", [lambda f: f.write(b"\0"), lambda f: f.truncate(9)])
def test_a_damaged_chunk_is_found_and_can_be_written_over(disk: DiskTier, damage: object) -> None:
    digest = store(disk, CONTENT)
    path = disk.path(digest)
    path.chmod(0o644)
    assert callable(damage)
    with path.open("r+b") as file:
        damage(file)
        file.truncate(len(CONTENT))
    path.chmod(0o444)
    copy = DiskCopy(disk, digest, BLOB)
    place = Region("memory", len(CONTENT))
    assert [copy.take(index, place) for index in (0, 1)].count(False) == len(copy.wrong) >= 1
    place.view[:] = CONTENT
    source = place.lend()
    copy.mend(source)
    os.close(source)
    place.close()
    assert path.read_bytes() == CONTENT
    assert path.stat().st_mode & 0o777 == 0o444


def test_what_a_killed_agent_was_filling_is_taken_up_by_the_next(disk: DiskTier) -> None:
    landing = start(disk, CONTENT)
    landing.put(0, memoryview(CONTENT)[:CHUNK_BYTES])
    again = DiskTier(disk.root)  # the first one was killed
    assert again.used_bytes == len(CONTENT)
    second = start(again, CONTENT)
    assert right_chunks(second, BLOB) == [0]
    second.put(CHUNK_BYTES, memoryview(CONTENT)[CHUNK_BYTES:])
    second.keep(BLOB.digest)
    assert again.path(BLOB.digest).read_bytes() == CONTENT
    assert len(list(disk.root.iterdir())) == 1 and again.used_bytes == len(CONTENT)


def test_what_a_thread_brings_late_changes_nothing(disk: DiskTier) -> None:
    whole, given_up = start(disk, CONTENT), start(disk, OTHER)
    whole.put(0, memoryview(CONTENT))
    whole.keep(BLOB.digest)
    given_up.drop()
    for landing in (whole, given_up):
        landing.put(0, memoryview(OTHER))
    assert disk.path(BLOB.digest).read_bytes() == CONTENT
    assert [path.name for path in disk.root.iterdir()] == [BLOB.digest]


def test_a_file_that_is_checked_stays_while_a_peer_is_told_a_part_of_it(disk: DiskTier) -> None:
    digest = store(disk, CONTENT)
    landing = check(disk, digest, BLOB)
    told = landing.view[:10]
    landing.drop()
    assert disk.has(digest, len(CONTENT)) and bytes(told) == CONTENT[:10]


def test_a_limit_counts_what_is_there_and_what_is_coming(tmp_path: Path) -> None:
    disk = DiskTier(tmp_path / "disk", limit_bytes=2 * len(CONTENT))
    store(disk, CONTENT)
    coming = disk.reserve(len(CONTENT))
    with pytest.raises(NoSpace, match=r"1 bytes more are needed and 17 MiB of its limit of 17 MiB"):
        disk.reserve(1)
    assert disk.lacks(1) == 1
    coming.release()
    disk.reserve(1).release()


def test_a_new_tier_counts_what_is_there_and_clears_what_is_not_whole(disk: DiskTier) -> None:
    store(disk, CONTENT)
    land(disk, disk.reserve(10), "no digest", Draft(10))
    start(disk, CONTENT)
    again = DiskTier(disk.root)
    assert again.digests() == [BLOB.digest] and again.used_bytes == len(CONTENT)
    assert [path.name for path in disk.root.iterdir()] == [BLOB.digest]


def test_a_link_has_the_files_mode_without_write_and_its_time(
    disk: DiskTier, tmp_path: Path
) -> None:
    digest = store(disk, b"#!/bin/sh\n")
    disk.link(digest, tmp_path / "run.sh", 0o755, 1e9)
    stat = (tmp_path / "run.sh").stat()
    assert (stat.st_mode & 0o777, stat.st_mtime) == (0o555, 1e9)
    assert os.path.samefile(tmp_path / "run.sh", disk.path(digest))


def test_two_small_files_of_one_content_keep_their_own_modes(
    disk: DiskTier, tmp_path: Path
) -> None:
    digest = store(disk, b"#!/bin/sh\n")
    disk.link(digest, tmp_path / "run.sh", 0o755, 1e9)
    disk.link(digest, tmp_path / "run.txt", 0o644, 2e9)
    assert (tmp_path / "run.sh").stat().st_mode & 0o777 == 0o555
    assert (tmp_path / "run.txt").stat().st_mode & 0o777 == 0o444
    assert (tmp_path / "run.txt").read_bytes() == b"#!/bin/sh\n"


def test_a_large_file_is_on_disk_once_whatever_its_names_times(
    disk: DiskTier, tmp_path: Path
) -> None:
    digest = store(disk, CONTENT)
    for number in range(3):
        disk.link(digest, tmp_path / str(number), 0o644, 1e9 + number)
        disk.link(digest, tmp_path / str(number), 0o644, 1e9 + number)  # again does no harm
    assert disk.path(digest).stat().st_nlink == 4


def test_a_full_disk_is_named(disk: DiskTier) -> None:
    with pytest.raises(NoSpace, match=r"is full: \d+ MiB more are needed"):
        disk.reserve(1 << 50)
    assert list(disk.root.iterdir()) == []
