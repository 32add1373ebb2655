"""A result is published whole, once, and by what its bytes are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hotplate.cache.copies.taken_blobs import TakenBlobs
from hotplate.cache.errors import BadEnvironment, ChunkCorrupt, OriginUnavailable
from hotplate.cache.manifest import CHUNK_BYTES, Blob, Manifest, ManifestEntry
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.tiers.disk import DiskTier
from hotplate.cache.volumes.taking.publication import Publication
from hotplate.cache.volumes.taking.take_over import TakenTree
from hotplate.cache.volumes.ticket import Ticket, Use
from tests.support.cache.fakes import random_bytes

NOTE = f"environments/{'e' * 64}"
TICKET = Ticket(
    namespace="builds",
    service_account="builds",
    organization="acme",
    deployment="",
    revision=0,
    service="",
    use=Use.BUILD,
    bento="b" * 64,
    note=NOTE,
    about={"bentos": ["hello"]},
)
CONTENTS = [random_bytes(size, size) for size in (0, 10, CHUNK_BYTES, 2 * CHUNK_BYTES + 1)]


@pytest.fixture
def disk(tmp_path: Path) -> DiskTier:
    return DiskTier(tmp_path / "disk", reserve_bytes=1)


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(f"file://{tmp_path}/store")


def taken(disk: DiskTier) -> list[Blob]:
    blobs = TakenBlobs(disk, disk.reserve(sum(map(len, CONTENTS))), set())
    for content in CONTENTS:
        pieces = [content[at : at + CHUNK_BYTES] for at in range(0, len(content), CHUNK_BYTES)]
        blobs.keep(len(content), lambda pieces=pieces: pieces)  # type: ignore[misc]
    return list(blobs.blobs.values())


def manifest(blobs: list[Blob]) -> Manifest:
    return Manifest(tuple(ManifestEntry(f"{n}", blob=blob) for n, blob in enumerate(blobs)))


def published(
    disk: DiskTier, store: BlobStore, blobs: list[Blob], beat: Callable[[], None] = lambda: None
) -> str:
    return Publication(store, TICKET).publish(TakenTree(manifest(blobs), blobs), disk, beat)


def test_all_of_it_is_stored_and_named(disk: DiskTier, store: BlobStore) -> None:
    assert Publication(store, TICKET).earlier() is None
    blobs = taken(disk)
    digest = published(disk, store, blobs)
    assert store.get_note(NOTE) == {"bentos": ["hello"], "manifest": digest}
    assert store.get_manifest(digest) == manifest(blobs)
    assert [b"".join(store.chunks(blob)) for blob in blobs] == CONTENTS
    assert Publication(store, TICKET).earlier() == digest
    assert store.contents.listing().incoming == {}


def test_what_is_there_is_not_sent_again(disk: DiskTier, store: BlobStore, tmp_path: Path) -> None:
    blobs = taken(disk)
    published(disk, store, blobs)
    inodes = {path: path.stat().st_ino for path in (tmp_path / "store/blobs").rglob("*")}
    store.contents.remove_note(NOTE)
    published(disk, store, blobs)
    assert {path: path.stat().st_ino for path in (tmp_path / "store/blobs").rglob("*")} == inodes


def test_another_build_that_ends_meanwhile_counts(disk: DiskTier, store: BlobStore) -> None:
    theirs = store.put_manifest(Manifest(()))

    def beat() -> None:
        store.put_note(NOTE, {"manifest": theirs})

    assert published(disk, store, taken(disk), beat) == theirs
    assert store.get_note(NOTE) == {"manifest": theirs}
    assert list(store.contents.listing().manifests) == [theirs]


@pytest.mark.parametrize(
    "note", [{}, {"manifest": ""}, {"manifest": "0" * 64}, {"manifest": "../x"}, {"manifest": None}]
)
def test_a_note_that_names_nothing_that_is_there_is_written_anew(
    disk: DiskTier, store: BlobStore, note: dict[str, str]
) -> None:
    store.put_note(NOTE, note)
    digest = published(disk, store, taken(disk))
    assert store.get_note(NOTE) == {"bentos": ["hello"], "manifest": digest}


def test_bytes_that_were_damaged_on_the_disk_are_not_stored(
    disk: DiskTier, store: BlobStore
) -> None:
    blobs = taken(disk)
    with disk.path(blobs[-1].digest).open("r+b") as file:
        file.write(b"damaged")
    with pytest.raises(ChunkCorrupt, match="was damaged while it was published; ask again"):
        published(disk, store, blobs)
    assert not store.has(blobs[-1])
    assert store.get_note(NOTE) is None
    assert store.contents.listing().incoming == {}


def test_nothing_is_named_where_it_is_stopped(disk: DiskTier, store: BlobStore) -> None:
    def stop() -> None:
        raise BadEnvironment("the pod has gone")

    with pytest.raises(BadEnvironment):
        published(disk, store, taken(disk), stop)
    assert store.get_note(NOTE) is None
    assert not store.contents.listing().manifests
    assert not store.holds.held(0)


def test_an_origin_that_is_down_is_told(disk: DiskTier, tmp_path: Path) -> None:
    (tmp_path / "store").write_bytes(b"")
    store = BlobStore(f"file://{tmp_path}/store")
    with pytest.raises(OriginUnavailable):
        Publication(store, TICKET).earlier()
    with pytest.raises(OriginUnavailable):
        published(disk, store, taken(disk))
