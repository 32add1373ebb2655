from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hotplate.cache.errors import ChunkCorrupt, UnknownPart
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.tarballs.archive import unpack
from tests.support.cache.stores import KINDS, contents, store
from tests.support.cache.tars import tar_of


@pytest.fixture(params=KINDS)
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlobStore]:
    with store(request.param, tmp_path) as made:
        yield made


def put(blobs: BlobStore, number: int, content: bytes, upload_id: str = "upload") -> str:
    with blobs.part_writer(upload_id, number) as writer:
        writer.write(content)
        return writer.commit()


def test_parts_that_arrive_out_of_order_are_read_in_order(blobs: BlobStore) -> None:
    contents_by_number = {3: b"c", 1: b"a" * (9 << 20), 2: b""}
    etags = {number: put(blobs, number, content) for number, content in contents_by_number.items()}
    assert blobs.parts("upload") == {
        number: (len(contents_by_number[number]), etags[number]) for number in (1, 2, 3)
    }
    pieces = list(blobs.read_parts("upload", [1, 2, 3]))
    assert b"".join(pieces) == b"a" * (9 << 20) + b"c"
    assert max(map(len, pieces)) == 1 << 20


def test_a_repeated_part_replaces_the_one_before(blobs: BlobStore) -> None:
    first = put(blobs, 1, b"first try")
    second = put(blobs, 1, b"second")
    assert first != second
    assert blobs.parts("upload") == {1: (6, second)}
    assert b"".join(blobs.read_parts("upload", [1])) == b"second"
    assert put(blobs, 1, b"first try") == first


def test_a_part_left_without_commit_keeps_the_one_before(blobs: BlobStore) -> None:
    etag = put(blobs, 1, b"whole")
    with blobs.part_writer("upload", 1) as writer:
        writer.write(b"half of a new o")
    assert blobs.parts("upload") == {1: (5, etag)}
    assert contents(blobs) == ["parts/upload/00001"]


def test_parts_arrive_in_parallel(blobs: BlobStore) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: put(blobs, number, b"%d." % number), range(1, 21)))
    assert list(blobs.parts("upload")) == list(range(1, 21))
    joined = b"".join(blobs.read_parts("upload", range(1, 21)))
    assert joined == b"".join(b"%d." % number for number in range(1, 21))


def test_a_missing_part_is_named(blobs: BlobStore) -> None:
    put(blobs, 1, b"x")
    with pytest.raises(UnknownPart, match="upload 'upload' has no part 2; send it again"):
        list(blobs.read_parts("upload", [1, 2]))


def test_dropped_parts_are_gone_and_other_uploads_stay(blobs: BlobStore) -> None:
    put(blobs, 1, b"x")
    put(blobs, 1, b"y", "other")
    blobs.drop_parts("upload")
    blobs.drop_parts("upload")
    assert blobs.parts("upload") == {}
    assert list(blobs.parts("other")) == [1]


def test_an_archive_sent_in_parts_is_unpacked_from_them(blobs: BlobStore) -> None:
    tar = tar_of({"model.bin": b"weights" * 1000})
    for number, start in enumerate(range(0, len(tar), 3000), 1):
        put(blobs, number, tar[start : start + 3000])
    manifest = unpack(blobs.read_parts("upload", sorted(blobs.parts("upload"))), blobs)
    assert [entry.path for entry in manifest.entries] == ["model.bin"]


def test_a_damaged_part_is_not_unpacked(tmp_path: Path) -> None:
    blobs = BlobStore(f"file://{tmp_path}")
    put(blobs, 1, tar_of({"a": b"content"}))
    path = tmp_path / "parts/upload/00001"
    path.write_bytes(path.read_bytes().replace(b"content", b"kontent"))
    with pytest.raises(ChunkCorrupt, match="part 1 of upload 'upload' is not what arrived"):
        unpack(blobs.read_parts("upload", [1]), blobs)
    path.write_bytes(b"short")
    with pytest.raises(ChunkCorrupt):
        list(blobs.read_parts("upload", [1]))
    assert contents(blobs) == ["parts/upload/00001"]


@pytest.mark.parametrize("upload_id", ["", "..", "../x", "a/b", "a" * 129, "a\0", "ü", "a\n"])
def test_what_is_no_upload_id_never_becomes_a_path(tmp_path: Path, upload_id: str) -> None:
    blobs = BlobStore(f"file://{tmp_path}")
    for ask in (
        lambda: blobs.part_writer(upload_id, 1),
        lambda: blobs.parts(upload_id),
        lambda: list(blobs.read_parts(upload_id, [1])),
        lambda: blobs.drop_parts(upload_id),
    ):
        with pytest.raises(UnknownPart, match="is no upload id"):
            ask()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [0, -1, 100_000])
def test_what_is_no_part_number_is_refused(tmp_path: Path, number: int) -> None:
    with pytest.raises(UnknownPart, match="is no part number"):
        BlobStore(f"file://{tmp_path}").part_writer("upload", number)
