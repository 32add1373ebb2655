from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hotplate.cache.errors import (
    ChunkCorrupt,
    NoSpace,
    OriginUnavailable,
    UnknownBlob,
    UnknownManifest,
)
from hotplate.cache.manifest import CHUNK_BYTES, Blob, Manifest, ManifestEntry, chunk_digest
from hotplate.cache.store.blobs import BlobStore
from tests.support.cache.stores import KINDS, contents, faulty_store, store
from tests.support.small_disk import MIB, fill, small_disk


@pytest.fixture(params=KINDS)
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlobStore]:
    with store(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> BlobStore:
    return BlobStore(f"file://{tmp_path}")


def put(blobs: BlobStore, *pieces: bytes) -> Blob:
    with blobs.writer() as writer:
        for piece in pieces:
            writer.write(piece)
        return writer.commit()


def test_a_blob_comes_back_in_chunks_with_their_digests(blobs: BlobStore) -> None:
    content = random.Random(1).randbytes(CHUNK_BYTES + 5)
    blob = put(blobs, content[:3], content[3:-2], content[-2:])
    parts = [content[:CHUNK_BYTES], content[CHUNK_BYTES:]]
    assert blob == Blob(len(content), tuple(map(chunk_digest, parts)))
    assert list(blobs.chunks(blob)) == parts
    assert blobs.read(blob, CHUNK_BYTES - 2, 4) == content[CHUNK_BYTES - 2 : CHUNK_BYTES + 2]
    assert blobs.has(blob)
    assert contents(blobs) == [f"blobs/{blob.digest[:2]}/{blob.digest}"]
    assert blobs.used_bytes() == len(content)


def test_an_empty_blob_has_no_chunks(blobs: BlobStore) -> None:
    blob = put(blobs)
    assert blob == Blob(0, ())
    assert blobs.has(blob)
    assert blobs.read(blob, 0, 0) == b""
    assert list(blobs.chunks(blob)) == []


def test_the_same_content_is_stored_once(blobs: BlobStore) -> None:
    assert put(blobs, b"same") == put(blobs, b"sa", b"me")
    assert len(contents(blobs)) == 1


def test_content_that_comes_again_takes_the_room_of_both_for_a_while(folder: BlobStore) -> None:
    def used_bytes(content: bytes) -> int:
        before = folder.used_bytes()
        with folder.writer() as writer:
            writer.write(content)
            writer.replace()
        return folder.used_bytes() - before

    assert used_bytes(b"content") == used_bytes(b"content") == used_bytes(b"another")
    now = datetime.now(UTC)
    folder.drop_replaced(now - timedelta(minutes=1))
    assert folder.used_bytes() == 21
    folder.drop_replaced(now + timedelta(minutes=1))
    assert folder.used_bytes() == 14


def test_a_blob_that_comes_again_mends_the_one_that_was_there(
    tmp_path: Path, folder: BlobStore
) -> None:
    """As a chunk that is corrupt says: push it again."""
    blob = put(folder, b"content")
    (tmp_path / "blobs" / blob.digest[:2] / blob.digest).write_bytes(b"CONTENT")
    with folder.writer() as writer:
        writer.write(b"content")
        assert writer.replace() == blob
    assert list(folder.chunks(blob)) == [b"content"]


def test_which_folders_are_there_says_nothing_of_what_is_in_them(
    tmp_path: Path, folder: BlobStore
) -> None:
    with folder.writer() as writer:
        writer.write(b"content")
        writer.replace()
    assert len(list((tmp_path / "blobs").iterdir())) == 256


def test_a_bucket_takes_what_comes_again(blobs: BlobStore) -> None:
    for _ in range(2):
        with blobs.writer() as writer:
            writer.write(b"content")
            blob = writer.replace()
        assert list(blobs.chunks(blob)) == [b"content"]
    blobs.drop_replaced(datetime.now(UTC) + timedelta(minutes=1))
    assert contents(blobs) == [f"blobs/{blob.digest[:2]}/{blob.digest}"]


def test_a_blob_left_without_commit_is_gone(blobs: BlobStore) -> None:
    with blobs.writer() as writer:
        writer.write(b"half")
    with blobs.writer() as writer:
        writer.write(b"whole")
        sealed = writer.seal()
        assert not blobs.has(sealed)
    assert contents(blobs) == []


def test_a_blob_that_was_cut_short_is_replaced_by_the_next_push(
    tmp_path: Path, folder: BlobStore
) -> None:
    blob = put(folder, b"content")
    os.truncate(tmp_path / contents(folder)[0], 3)
    assert not folder.has(blob)
    with pytest.raises(ChunkCorrupt, match="cut short"):
        folder.read(blob, 0, 7)
    put(folder, b"content")
    assert folder.read(blob, 0, 7) == b"content"


def test_a_flipped_bit_is_never_served(tmp_path: Path, folder: BlobStore) -> None:
    blob = put(folder, b"content")
    (tmp_path / contents(folder)[0]).write_bytes(b"kontent")
    with pytest.raises(ChunkCorrupt, match=r"chunk 0 of blob .* push it again"):
        list(folder.chunks(blob))


def test_an_unknown_blob_is_named(blobs: BlobStore) -> None:
    blob = Blob(3, (chunk_digest(b"abc"),))
    assert not blobs.has(blob)
    with pytest.raises(UnknownBlob, match=blob.digest):
        blobs.read(blob, 0, 3)


@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (0, 8), (7, 1), (0, -1)])
def test_reading_beyond_a_blob_is_refused(folder: BlobStore, offset: int, length: int) -> None:
    blob = put(folder, b"content")
    with pytest.raises(ValueError, match="of a blob of 7 bytes"):
        folder.read(blob, offset, length)


def test_threads_push_and_read_the_same_and_different_blobs(blobs: BlobStore) -> None:
    def push(number: int) -> bool:
        content = bytes([number % 4]) * 1000
        return b"".join(blobs.chunks(put(blobs, content))) == content

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(push, range(32)))
    assert len(contents(blobs)) == 4


MANIFEST = Manifest(
    (
        ManifestEntry("config.json", 0o644, 1_700_000_000.5, Blob(2, (chunk_digest(b"{}"),))),
        ManifestEntry("empty", 0o755, 1_700_000_000.0),
        ManifestEntry("ü/model.safetensors", 0o600, 0.0, Blob(0, ())),
    )
)


def test_a_manifest_comes_back_by_its_digest(blobs: BlobStore) -> None:
    digest = blobs.put_manifest(MANIFEST)
    assert blobs.put_manifest(MANIFEST) == digest
    assert blobs.get_manifest(digest) == MANIFEST
    assert contents(blobs) == [f"manifests/{digest}.json"]


def test_the_bytes_of_a_manifest_never_change() -> None:
    assert MANIFEST.to_bytes() == (
        b"["
        b'{"chunks": ["6e46dd10defc9b56c29a6ec56b508c21f54c08192194e4df25bf36f0c9c3c279"],'
        b' "mode": 420, "mtime": 1700000000.5, "path": "config.json", "size": 2}, '
        b'{"mode": 493, "mtime": 1700000000.0, "path": "empty"}, '
        b'{"chunks": [], "mode": 384, "mtime": 0.0, "path": "\\u00fc/model.safetensors", "s'
        b'ize": 0}'
        b"]"
    )
    assert MANIFEST.digest == "584996fe03de6c307898cd3cdf634d15163971df031e3125ac54c903601925e0"


def test_an_unknown_manifest_is_named(blobs: BlobStore) -> None:
    with pytest.raises(UnknownManifest, match=f"no manifest '{'a' * 64}'"):
        blobs.get_manifest("a" * 64)


@pytest.mark.parametrize("digest", ["", "a" * 63, "A" * 64, "a" * 64 + "\n", "../secret"])
def test_what_is_no_digest_never_becomes_a_path(tmp_path: Path, digest: str) -> None:
    blobs = BlobStore(f"file://{tmp_path}")
    (tmp_path / "manifests").mkdir()
    (tmp_path / f"manifests/{digest}.json").write_bytes(b"[]")
    with pytest.raises(UnknownManifest):
        blobs.get_manifest(digest)


def test_a_damaged_manifest_is_never_used(tmp_path: Path, folder: BlobStore) -> None:
    digest = folder.put_manifest(MANIFEST)
    path = tmp_path / contents(folder)[0]
    path.write_bytes(path.read_bytes().replace(b"config", b"konfig"))
    with pytest.raises(ChunkCorrupt, match=digest):
        folder.get_manifest(digest)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path, MIB) as folder:
        yield folder


def test_a_disk_that_fills_up_keeps_what_is_there_and_nothing_half(disk: Path) -> None:
    blobs = BlobStore(f"file://{disk}")
    kept = put(blobs, b"kept")
    with pytest.raises(NoSpace, match=r"is full: 2 MiB more are needed .* free some space"):
        put(blobs, bytes(2 << 20))
    assert contents(blobs) == [f"blobs/{kept.digest[:2]}/{kept.digest}"]
    assert put(blobs, bytes(500_000)).size_bytes == 500_000


def test_a_disk_that_others_fill_is_reported_full(disk: Path) -> None:
    blobs = BlobStore(f"file://{disk}")
    with blobs.writer() as writer:
        writer.write(bytes(500_000))
        filler = fill(disk)
        with pytest.raises(NoSpace, match="is full"):
            writer.write(bytes(9000))
    filler.unlink()
    assert contents(blobs) == []


def test_a_full_bucket_is_reported_full() -> None:
    for number in (errno.ENOSPC, errno.EDQUOT):
        with pytest.raises(NoSpace, match="faulty://host/store is full"):
            put(faulty_store(OSError(number, "full")), b"x")


@pytest.mark.parametrize("fault", [OSError(5, "broken"), PermissionError(), KeyError("NoSuchKey")])
def test_a_remote_that_fails_is_named_without_its_credentials(fault: Exception) -> None:
    blobs = faulty_store(fault)
    blob = Blob(1, (chunk_digest(b"x"),))
    for ask in (
        lambda: put(blobs, b"x"),
        lambda: blobs.read(blob, 0, 1),
        lambda: blobs.has(blob),
        lambda: blobs.get_manifest("a" * 64),
    ):
        with pytest.raises(OriginUnavailable, match="faulty://host/store cannot be used") as failed:
            ask()
        assert "secret" not in str(failed.value)


def test_a_folder_that_cannot_be_made_is_an_origin_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OriginUnavailable, match="Not a directory"):
        put(BlobStore(f"file://{tmp_path}/file/store"), b"x")


def test_a_chained_url_is_refused() -> None:
    with pytest.raises(ValueError, match="without '::'"):
        BlobStore("simplecache::s3://bucket")
