from __future__ import annotations

import os
from pathlib import Path

import pytest

from hotplate.cache.disk import DiskTier
from hotplate.cache.errors import NoSpace
from hotplate.cache.manifest import CHUNK_BYTES
from tests.cache.fakes import blob_of, random_bytes

CONTENT = random_bytes(CHUNK_BYTES + 100, 2)
BLOB = blob_of(CONTENT)


@pytest.fixture
def disk(tmp_path: Path) -> DiskTier:
    return DiskTier(tmp_path / "disk")


def store(disk: DiskTier, content: bytes) -> str:
    landing = disk.land(len(content))
    landing.view[:] = content
    landing.keep(blob_of(content).digest)
    return blob_of(content).digest


def test_a_landed_blob_is_a_read_only_file_named_by_its_digest(disk: DiskTier) -> None:
    digest = store(disk, CONTENT)
    assert disk.path(digest).read_bytes() == CONTENT
    assert disk.path(digest).stat().st_mode & 0o777 == 0o444
    assert disk.has(digest, len(CONTENT)) and disk.verify(digest, BLOB)
    assert disk.used_bytes == len(CONTENT)


def test_a_blob_is_written_behind_from_a_descriptor(disk: DiskTier) -> None:
    source = os.memfd_create("source")
    os.write(source, CONTENT)
    disk.write(BLOB.digest, source, len(CONTENT))
    os.close(source)
    assert disk.verify(BLOB.digest, BLOB)


def test_nothing_is_there_before_it_is_kept(disk: DiskTier) -> None:
    landing = disk.land(len(CONTENT))
    assert not disk.has(BLOB.digest, len(CONTENT))
    landing.drop()
    assert list(disk.root.iterdir()) == []


@pytest.mark.parametrize("damage", [lambda f: f.write(b"\0"), lambda f: f.truncate(9)])
def test_a_damaged_file_is_found(disk: DiskTier, damage: object) -> None:
    digest = store(disk, CONTENT)
    disk.path(digest).chmod(0o644)
    assert callable(damage)
    with disk.path(digest).open("r+b") as file:
        damage(file)
    assert not disk.verify(digest, BLOB)


def test_a_new_tier_counts_what_is_there_and_clears_what_is_not_whole(disk: DiskTier) -> None:
    store(disk, CONTENT)
    abandoned = disk.land(10)
    again = DiskTier(disk.root)
    assert again.digests() == [BLOB.digest] and again.used_bytes == len(CONTENT)
    assert [path.name for path in disk.root.iterdir()] == [BLOB.digest]
    abandoned.drop()


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
        disk.land(1 << 50)
    assert list(disk.root.iterdir()) == []
