from __future__ import annotations

import gzip
import hashlib
import random
import tracemalloc
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotplate.cache.errors import BadArchive
from hotplate.cache.manifest import CHUNK_BYTES, Manifest, ManifestEntry
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.tarballs.archive import ArchiveLimits, pack, packed_size, unpack
from tests.support.cache.tars import END, files_in, header, member, pax, record, tar_of

NAMES = st.text(
    st.characters(exclude_characters="/\\\0", exclude_categories=["Cs"]), min_size=1, max_size=40
).filter(lambda name: name not in (".", ".."))
FILES = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=4).map("/".join),
    st.binary(max_size=1500),
    max_size=6,
)


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(f"file://{tmp_path}/store")


def in_memory() -> BlobStore:
    return BlobStore(f"memory://{uuid.uuid4().hex}")


def cut(data: bytes, piece_bytes: int) -> Iterator[bytes]:
    for start in range(0, len(data), piece_bytes):
        yield data[start : start + piece_bytes]


def stored(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def is_a_tree(files: dict[str, bytes]) -> bool:
    return not any(other.startswith(f"{path}/") for path in files for other in files)


@settings(max_examples=40)
@given(FILES.filter(is_a_tree), st.integers(1, 5000))
def test_what_was_unpacked_is_packed_again_with_the_same_files(
    files: dict[str, bytes], piece_bytes: int
) -> None:
    blobs = in_memory()
    manifest = unpack(cut(tar_of(files), piece_bytes), blobs)
    assert {entry.path for entry in manifest.entries} == files.keys()
    packed = b"".join(pack(manifest, blobs))
    assert len(packed) == packed_size(manifest)
    assert files_in(packed) == files
    assert unpack([packed], blobs) == manifest


def test_folders_modes_and_times_survive_the_round_trip() -> None:
    blobs = in_memory()
    tar = tar_of({"empty": None, "b": b"", "a/c": b"content"})
    tar = pax(record(b"mtime", b"1700000000.123456789")) + member("tool") + tar
    manifest = unpack([tar], blobs)
    assert [(e.path, oct(e.mode), e.mtime) for e in manifest.entries] == [
        ("a/c", "0o644", 1_700_000_000.0),
        ("b", "0o644", 1_700_000_000.0),
        ("empty", "0o755", 1_700_000_000.0),
        ("tool", "0o644", 1_700_000_000.123456789),
    ]
    assert unpack(pack(manifest, blobs), blobs) == manifest


@pytest.mark.parametrize("mtime", [0.0, 1e-7, -1.5, -3.0, 1_700_000_000.5, 2.0**39 + 0.25])
def test_every_time_survives_the_round_trip(mtime: float) -> None:
    blobs = in_memory()
    manifest = Manifest((ManifestEntry("folder", 0o755, mtime),))
    assert unpack(pack(manifest, blobs), blobs) == manifest


def test_the_order_of_the_members_does_not_change_the_manifest() -> None:
    blobs = in_memory()
    first = unpack([tar_of({"a": b"1", "b": b"2"})], blobs)
    assert unpack([tar_of({"b": b"2", "a": b"1"})], blobs).digest == first.digest


def test_a_packed_tar_never_changes() -> None:
    blobs = in_memory()
    manifest = unpack([tar_of({"a": b"1", "sub/ü": b"2" * 600, "sub": None})], blobs)
    packed = b"".join(pack(manifest, blobs))
    assert hashlib.sha256(packed).hexdigest() == (
        "7e28f74ffeead78696641bbda4efaeaa7bd63f5e13c8cb6d6ce59d036442f22b"
    )


def test_equal_files_are_stored_once(tmp_path: Path, blobs: BlobStore) -> None:
    unpack([tar_of({"a": b"same", "b": b"same"})], blobs)
    assert len(stored(tmp_path)) == 1


@pytest.mark.parametrize("kind", ["tar", "gzip"])
def test_an_archive_cut_at_any_point_leaves_nothing(
    tmp_path: Path, blobs: BlobStore, kind: str
) -> None:
    tar = tar_of({"a": b"x" * 700, "sub/" + "b" * 120: b"content"})
    whole = tar[: len(tar.rstrip(b"\0")) // 512 * 512 + 512 + len(END)]
    packed = whole if kind == "tar" else gzip.compress(whole)
    for kept in range(0, len(packed), 97 if kind == "tar" else 7):
        with pytest.raises(BadArchive, match="ends in the middle of"):
            unpack([packed[:kept]], blobs)
        assert stored(tmp_path) == []
    assert len(unpack([packed], blobs).entries) == 2


@pytest.mark.parametrize(
    "last", [member("../a", b"x"), member("a", kind=b"2", link="/"), member("file"), b"x" * 512]
)
def test_a_refused_archive_leaves_nothing(tmp_path: Path, blobs: BlobStore, last: bytes) -> None:
    with pytest.raises(BadArchive):
        unpack([member("file", b"content") + last + END], blobs)
    assert stored(tmp_path) == []


def test_a_sender_that_goes_away_leaves_nothing(tmp_path: Path, blobs: BlobStore) -> None:
    def pieces() -> Iterator[bytes]:
        yield tar_of({"a": b"x" * 5000})[:2000]
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        unpack(pieces(), blobs)
    assert stored(tmp_path) == []


def test_a_refused_archive_does_not_take_a_blob_that_was_there(blobs: BlobStore) -> None:
    manifest = unpack([member("a", b"kept") + END], blobs)
    with pytest.raises(BadArchive):
        unpack([member("b", b"kept") + member("..") + END], blobs)
    assert files_in(b"".join(pack(manifest, blobs))) == {"a": b"kept"}


def test_nothing_is_written_for_a_file_above_its_limit(tmp_path: Path, blobs: BlobStore) -> None:
    with pytest.raises(BadArchive, match="limit 10"):
        unpack([member("a", b"x" * 11)], blobs, ArchiveLimits(file_bytes=10))
    assert list(tmp_path.iterdir()) == []


def test_memory_stays_flat_while_a_large_archive_passes(blobs: BlobStore) -> None:
    size_bytes = 64 << 20
    piece = random.Random(1).randbytes(40_000)

    def pieces() -> Iterator[bytes]:
        yield header("big", size_bytes)
        for start in range(0, size_bytes, len(piece)):
            yield piece[: size_bytes - start]
        yield END

    tracemalloc.start()
    try:
        manifest = unpack(pieces(), blobs)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
        packed_bytes = sum(len(part) for part in pack(manifest, blobs))
        assert tracemalloc.get_traced_memory()[1] < 3 * CHUNK_BYTES
    finally:
        tracemalloc.stop()
    assert packed_bytes == packed_size(manifest) == 512 + size_bytes + len(END)
