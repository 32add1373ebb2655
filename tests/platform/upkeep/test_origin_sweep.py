"""What stays at the origin of all that was pushed, and what goes."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hotplate.cache.errors import ChunkCorrupt
from hotplate.cache.manifest import Manifest
from hotplate.cache.store.blobs import BlobStore, Digests
from hotplate.cache.store.holds import Hold
from hotplate.cache.tarballs.archive_limits import ArchiveLimits
from hotplate.platform.api.bentocloud.archives.unpacking import Unpacking
from hotplate.platform.store.artifacts import ArtifactDraft
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Artifact, Kind
from hotplate.platform.upkeep.origin_sweep import OriginSweep, unnamed
from tests.support.control_plane.cloud import tar_of
from tests.support.control_plane.quick_store import QuickStore
from tests.support.patience import PATIENCE_S


class Blobs(BlobStore):
    """Between the files and their manifest it waits until it is let go on."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.files_there = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def put_manifest(self, manifest: Manifest) -> str:
        self.files_there.set()
        assert self.go_on.wait(PATIENCE_S)
        return super().put_manifest(manifest)


@dataclass
class Place:
    store: Store
    blobs: Blobs
    unpacking: Unpacking
    origin: OriginSweep

    def begin(self, content: bytes) -> Artifact:
        """An upload of a model; its unpacking has begun."""
        organization = self.store.identities.ensure_user(
            "acme", "ada", "ada@example.com"
        ).organization.id
        self.store.artifacts.ensure_repository(organization, Kind.MODEL, "words")
        draft = ArtifactDraft(version="1")
        made = self.store.artifacts.create(organization, Kind.MODEL, "words", draft)
        upload = self.store.uploads.open(made.id)
        with self.blobs.part_writer(upload.id, 1) as part:
            part.write(tar_of({"model.yaml": b"{name: words, version: '1'}", "data": content}))
            part.commit()
        self.unpacking.start(upload, [1])
        return made

    async def push(self, content: bytes) -> str:
        """Its manifest, when the upload has ended."""
        return (await self.unpacking.wait(self.begin(content), 10)).files

    def content(self, manifest: str) -> bytes:
        """Of the model's one file."""
        entry = self.blobs.get_manifest(manifest).get("data")
        assert entry is not None
        assert entry.blob is not None
        return b"".join(self.blobs.chunks(entry.blob))


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    store = QuickStore(tmp_path / "hotplate.db")
    blobs = Blobs(f"file://{tmp_path / 'blobs'}")
    unpacking = Unpacking(store, blobs, ArchiveLimits())
    yield Place(store, blobs, unpacking, OriginSweep(store.artifacts, blobs, unpacking, ours=True))
    await unpacking.close()
    store.close()


def test_what_no_named_manifest_has_is_unnamed() -> None:
    there = Digests(frozenset({"m1", "m2"}), frozenset({"both", "first", "second", "alone"}))
    assert unnamed(there, {"m1": {"both", "first"}}) == Digests(
        frozenset({"m2"}), frozenset({"second", "alone"})
    )
    assert unnamed(there, {}) == there


async def test_what_was_pushed_again_goes_at_the_second_sweep_and_what_is_named_stays(
    place: Place,
) -> None:
    old = await place.push(b"old")
    assert not await place.origin.sweep(frozenset())
    assert not await place.origin.sweep(frozenset())
    new = await place.push(b"new")
    assert not await place.origin.sweep(frozenset()), "a download may just have been told of it"
    gone = await place.origin.sweep(frozenset())
    assert gone.manifests == {old}
    assert len(gone.blobs) == 1, "what both have stays"
    assert place.blobs.digests().manifests == {new}
    assert place.content(new) == b"new"


async def test_what_a_deployment_uses_stays_though_its_version_was_pushed_again(
    place: Place,
) -> None:
    old = await place.push(b"old")
    await place.push(b"new")
    for _ in range(3):
        assert not await place.origin.sweep(frozenset({old}))
    assert place.content(old) == b"old"


async def test_nothing_goes_while_somebody_holds_the_files(place: Place) -> None:
    old = await place.push(b"old")
    await place.push(b"new")
    await place.origin.sweep(frozenset())
    with Hold(place.blobs.holds, lambda: datetime.now(UTC)):
        assert not await place.origin.sweep(frozenset())
    assert (await place.origin.sweep(frozenset())).manifests == {old}


async def test_an_upload_keeps_the_blobs_that_it_is_about_to_name(place: Place) -> None:
    await place.push(b"the same")
    await place.push(b"another")
    await place.origin.sweep(frozenset())  # it has seen that nobody names the first
    place.blobs.files_there.clear()
    place.blobs.go_on.clear()
    again = place.begin(b"the same")
    await place.unpacking.wait(again, 0)
    try:
        assert not await place.origin.sweep(frozenset()), "not even before its turn has come"
        while not place.blobs.files_there.is_set():
            await place.unpacking.wait(again, 0.01)
        assert not await place.origin.sweep(frozenset())
    finally:
        place.blobs.go_on.set()
    done = await place.unpacking.wait(again, 10)
    assert place.content(done.files) == b"the same"


async def test_an_upload_that_comes_during_a_sweep_waits_for_its_end(place: Place) -> None:
    async with place.unpacking.standstill() as stands:
        assert stands
        artifact = place.begin(b"late")
        await place.unpacking.wait(artifact, 0.05)
        assert not place.blobs.files_there.is_set()
    done = await place.unpacking.wait(artifact, 10)
    assert place.content(done.files) == b"late"


async def test_nothing_goes_from_where_others_may_keep_their_files(place: Place) -> None:
    await place.push(b"old")
    await place.push(b"new")
    origin = OriginSweep(place.store.artifacts, place.blobs, place.unpacking, ours=False)
    before = place.blobs.digests()
    assert not await origin.sweep(frozenset())
    assert not await origin.sweep(frozenset())
    assert place.blobs.digests() == before


async def test_nothing_goes_while_a_manifest_cannot_be_read(place: Place, tmp_path: Path) -> None:
    named = await place.push(b"old")
    (tmp_path / "blobs" / "manifests" / f"{named}.json").write_text("damaged")
    before = place.blobs.digests()
    for _ in range(3):
        with pytest.raises(ChunkCorrupt):
            await place.origin.sweep(frozenset())
    assert place.blobs.digests() == before


async def test_a_strangers_file_is_left_alone(place: Place, tmp_path: Path) -> None:
    named = await place.push(b"mine")
    notes = [tmp_path / "blobs" / folder / "notes.txt" for folder in ("manifests", "blobs/ab")]
    for note in notes:
        note.parent.mkdir(exist_ok=True)
        note.write_text("keep me")
    for _ in range(3):
        assert not await place.origin.sweep(frozenset())
    assert all(note.exists() for note in notes)
    assert place.content(named) == b"mine"
