"""What a build has made is written to disk once, stays, and is right there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hotplate.cache.copies.taken_blobs import TakenBlobs
from hotplate.cache.errors import BadEnvironment, NoSpace
from hotplate.cache.manifest import CHUNK_BYTES, Blob
from hotplate.cache.tiers.disk import DiskTier
from tests.support.cache.fakes import blob_of, random_bytes

CONTENT = random_bytes(CHUNK_BYTES + 1000, 1)


@pytest.fixture
def disk(tmp_path: Path) -> DiskTier:
    return DiskTier(tmp_path / "disk", reserve_bytes=1)


def pieces() -> Iterator[bytes]:
    yield CONTENT[:CHUNK_BYTES]
    yield CONTENT[CHUNK_BYTES:]


def taken(disk: DiskTier, held: set[str] | None = None) -> TakenBlobs:
    return TakenBlobs(disk, disk.reserve(len(CONTENT)), set() if held is None else held)


def test_a_blob_is_on_disk_by_its_digest_and_held(disk: DiskTier) -> None:
    held: set[str] = set()
    one = taken(disk, held)
    blob = one.keep(len(CONTENT), pieces)
    assert blob == blob_of(CONTENT)
    assert one.blobs == {blob.digest: blob} and held == {blob.digest}
    assert disk.path(blob.digest).read_bytes() == CONTENT
    assert [path.name for path in disk.root.iterdir()] == [blob.digest]
    assert disk.used_bytes == len(CONTENT)


def test_an_empty_one_too(disk: DiskTier) -> None:
    assert taken(disk).keep(0, tuple) == Blob(0, ())
    assert disk.has(Blob(0, ()).digest, 0)


def test_one_that_is_there_stays_the_same_file(disk: DiskTier) -> None:
    blob = taken(disk).keep(len(CONTENT), pieces)
    before = disk.path(blob.digest).stat()
    again = taken(disk)
    again.keep(len(CONTENT), pieces)
    assert disk.path(blob.digest).stat().st_ino == before.st_ino
    assert list(again.blobs) == [blob.digest]


def test_what_is_wrong_in_one_that_is_there_is_written_over(disk: DiskTier) -> None:
    blob = taken(disk).keep(len(CONTENT), pieces)
    inode = disk.path(blob.digest).stat().st_ino
    with disk.path(blob.digest).open("r+b") as file:
        file.seek(CHUNK_BYTES + 5)
        file.write(b"damaged")
    taken(disk).keep(len(CONTENT), pieces)
    assert disk.path(blob.digest).read_bytes() == CONTENT
    assert disk.path(blob.digest).stat().st_ino == inode


def test_nothing_is_left_of_one_that_cannot_be_read_to_its_end(disk: DiskTier) -> None:
    def broken() -> Iterator[bytes]:
        yield CONTENT[:CHUNK_BYTES]
        raise BadEnvironment("it has changed")

    space = disk.reserve(len(CONTENT))
    with pytest.raises(BadEnvironment):
        TakenBlobs(disk, space, set()).keep(len(CONTENT), broken)
    space.release()
    assert list(disk.root.iterdir()) == []
    assert disk.used_bytes == 0


def test_a_file_that_no_disk_has_room_for_is_refused(disk: DiskTier) -> None:
    with pytest.raises(NoSpace, match="has no room for"):
        taken(disk).keep(1 << 50, tuple)
    assert list(disk.root.iterdir()) == []
