from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from hotplate.cache.errors import ChunkCorrupt, OriginUnavailable, UnknownBlob, UnknownManifest
from hotplate.cache.manifest import CHUNK_BYTES, Blob, Manifest, ManifestEntry
from hotplate.cache.origins.blob_source import FsspecOrigin, Origin, checked_manifest
from hotplate.cache.origins.request_size import RequestSize
from hotplate.cache.origins.schemes import Schemes
from hotplate.cache.store.web_origin import origin_at
from tests.support.cache.fakes import blob_of, publish, random_bytes
from tests.support.cache.web import WebServer

CONTENT = random_bytes(CHUNK_BYTES + 100, 1)


@pytest.fixture(params=["file", "memory"])
def origin(request: pytest.FixtureRequest, tmp_path: Path) -> FsspecOrigin:
    publish(tmp_path, {"a": CONTENT})
    if request.param == "file":
        return FsspecOrigin(f"file://{tmp_path}")
    name = uuid.uuid4().hex
    fsspec.filesystem("memory").put(f"{tmp_path}/", f"/{name}/", recursive=True)
    return FsspecOrigin(f"memory://{name}", RequestSize(lambda: 0.0))


def test_a_range_is_read_into_place(origin: FsspecOrigin) -> None:
    target = bytearray(200)
    origin.read_into(blob_of(CONTENT).digest, CHUNK_BYTES, memoryview(target)[50:150])
    assert target == bytes(50) + CONTENT[CHUNK_BYTES:] + bytes(50)


def test_a_manifest_is_found_by_its_digest(origin: FsspecOrigin) -> None:
    manifest = Manifest((ManifestEntry("a", 0o644, 1e9, blob_of(CONTENT)),))
    assert origin.manifest(manifest.digest) == manifest


def test_what_is_not_there_is_unknown(origin: FsspecOrigin) -> None:
    with pytest.raises(UnknownManifest, match="has no manifest 0000"):
        origin.manifest("0" * 64)
    with pytest.raises(UnknownBlob, match="has no blob 0000"):
        origin.read_into("0" * 64, 0, memoryview(bytearray(1)))


def test_a_blob_that_is_too_short_is_corrupt(origin: FsspecOrigin) -> None:
    with pytest.raises(ChunkCorrupt, match="100 of 101 bytes"):
        origin.read_into(blob_of(CONTENT).digest, CHUNK_BYTES, memoryview(bytearray(101)))


def test_an_origin_that_refuses_is_unavailable() -> None:
    origin = FsspecOrigin("http://127.0.0.1:9")
    with pytest.raises(OriginUnavailable, match="check its URL"):
        origin.manifest("0" * 64)


@pytest.mark.parametrize("path", ["../a", "/a", "a/../../b", "a//b", "./a", "a\0b", ""])
def test_a_path_that_leaves_the_tree_is_refused(path: str) -> None:
    manifest = Manifest((ManifestEntry(path, 0o644, 0.0, blob_of(b"")),))
    with pytest.raises(UnknownManifest, match="leaves the tree"):
        checked_manifest(manifest.digest, manifest.to_bytes())


SMALL = blob_of(b"abcdef")


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        (
            [ManifestEntry("a", link="/etc"), ManifestEntry("a/passwd", blob=SMALL)],
            "below what is no folder",
        ),
        (
            [ManifestEntry("a/b", blob=SMALL), ManifestEntry("a", blob=SMALL)],
            "below what is no folder",
        ),
        ([ManifestEntry("a", link="")], "no link that can be made"),
        ([ManifestEntry("a", link="b", blob=SMALL)], "no link that can be made"),
        ([ManifestEntry("a", blob=SMALL, part=(4, 3))], "3 bytes at 4"),
        ([ManifestEntry("a", blob=SMALL, part=(-1, 3))], "3 bytes at -1"),
        ([ManifestEntry("a", part=(0, 0))], "0 bytes at 0"),
        ([ManifestEntry("a", blob=SMALL), ManifestEntry("a", blob=SMALL)], "stands there twice"),
    ],
)
def test_an_entry_that_would_write_elsewhere_is_refused(
    entries: list[ManifestEntry], why: str
) -> None:
    manifest = Manifest(tuple(entries))
    with pytest.raises(UnknownManifest, match=why):
        checked_manifest(manifest.digest, manifest.to_bytes())


def test_links_and_parts_are_kept_and_older_manifests_keep_their_digest() -> None:
    plain = Manifest((ManifestEntry("a", 0o644, 1e9, SMALL), ManifestEntry("b", 0o755, 1e9)))
    assert b"link" not in plain.to_bytes() and b"part" not in plain.to_bytes()
    entries = (ManifestEntry("a", link="b/c"), ManifestEntry("p", blob=SMALL, part=(2, 3)))
    manifest = Manifest(entries)
    assert checked_manifest(manifest.digest, manifest.to_bytes()).entries == entries
    assert [entry.size_bytes for entry in entries] == [0, 3]


def test_a_manifest_that_does_not_add_up_is_refused() -> None:
    manifest = Manifest((ManifestEntry("a", 0o644, 0.0, Blob(5, ())),))
    with pytest.raises(UnknownManifest, match="0 chunks for 5 bytes"):
        checked_manifest(manifest.digest, manifest.to_bytes())
    with pytest.raises(ChunkCorrupt, match="another digest"):
        checked_manifest("0" * 64, manifest.to_bytes())


@pytest.fixture
def web() -> Iterator[WebServer]:
    blob = blob_of(CONTENT)
    with WebServer({f"/store/blobs/{blob.digest[:2]}/{blob.digest}": CONTENT}) as server:
        yield server


@pytest.fixture
def store(web: WebServer) -> Iterator[Origin]:
    schemes = Schemes(lambda: 0.0, {})
    yield origin_at(f"{web.url}/store", schemes)
    schemes.close()


def test_a_blob_store_on_the_web_is_read_by_our_own_client_range_by_range(
    web: WebServer, store: Origin
) -> None:
    target = bytearray(200)
    store.source(blob_of(CONTENT)).read_into(CHUNK_BYTES, memoryview(target)[50:150])
    assert target == bytes(50) + CONTENT[CHUNK_BYTES:] + bytes(50)
    last = CHUNK_BYTES + 99
    assert [span for _, _, span in web.requests] == [f"bytes={CHUNK_BYTES}-{last}"]


def test_a_blob_that_the_web_lacks_or_cuts_short_is_named(web: WebServer, store: Origin) -> None:
    with pytest.raises(UnknownBlob, match="push the bento or model again"):
        store.source(blob_of(b"other")).read_into(0, memoryview(bytearray(5)))
    (path,) = web.files
    web.files[path] = CONTENT[:-1]
    with pytest.raises(ChunkCorrupt, match=f"has not {len(CONTENT)} bytes"):
        store.source(blob_of(CONTENT)).read_into(0, memoryview(bytearray(CHUNK_BYTES)))
