"""What nobody wants goes, and nothing else: with pushes at the same time, and after kills."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hotplate.cache.errors import ChunkCorrupt
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.store.contents import Listing, StoreContents
from hotplate.cache.store.storage import open_storage
from hotplate.cache.tarballs.archive_limits import ArchiveLimits
from hotplate.platform.api.bentocloud.archives.unpacking import Unpacking
from hotplate.platform.api.hotplate.garbage import Collected
from hotplate.platform.errors import Busy
from hotplate.platform.store.artifacts import ArtifactDraft
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Artifact, Kind
from hotplate.platform.upkeep.claim import claim
from hotplate.platform.upkeep.collector import Collector
from tests.support.cache import stores
from tests.support.control_plane.cloud import tar_of
from tests.support.control_plane.quick_store import QuickStore
from tests.support.patience import PATIENCE_S


class NodesOwn:
    """What a node has of its own: nothing, or environments that nobody wants."""

    def __init__(self) -> None:
        self.unwanted: dict[str, int] = {}

    async def sweep(
        self,
        wanted: Callable[[], Set[str] | None],
        spare: int,
        used_before: float,
        *,
        dry_run: bool = False,
    ) -> Mapping[str, int]:
        found = dict(self.unwanted)
        if not dry_run:
            self.unwanted.clear()
        return found

    def manifests(self) -> Set[str]:
        return set()

    def notes(self) -> Set[str]:
        return set()


@dataclass
class Place:
    store: Store
    blobs: BlobStore
    unpacking: Unpacking
    running: set[str] | None = field(default_factory=set)
    node: NodesOwn = field(default_factory=NodesOwn)

    def collector(self, grace_s: float = -1) -> Collector:
        """One for which everything is old."""
        return Collector(
            self.store,
            self.blobs,
            "ours",
            lambda: self.running,
            self.node,
            NodesOwn(),
            grace_s=grace_s,
            spare_environments=0,
        )

    def begin(self, content: bytes, version: str = "1") -> Artifact:
        """An upload of a model; its unpacking has begun."""
        user = self.store.identities.ensure_user("acme", "ada", "ada@example.com")
        organization = user.organization.id
        self.store.artifacts.ensure_repository(organization, Kind.MODEL, "words")
        draft = ArtifactDraft(version=version)
        made = self.store.artifacts.create(organization, Kind.MODEL, "words", draft)
        upload = self.store.uploads.open(made.id)
        about = f"{{name: words, version: '{version}'}}".encode()
        with self.blobs.part_writer(upload.id, 1) as part:
            part.write(tar_of({"model.yaml": about, "data": content}))
            part.commit()
        self.unpacking.start(upload, [1])
        return made

    async def push(self, content: bytes, version: str = "1") -> str:
        """Its manifest, when the upload has ended."""
        return (await self.unpacking.wait(self.begin(content, version), PATIENCE_S)).files

    def content(self, manifest: str) -> bytes:
        """Of the model's one file."""
        entry = self.blobs.get_manifest(manifest).get("data")
        assert entry is not None
        assert entry.blob is not None
        return b"".join(self.blobs.chunks(entry.blob))


@pytest.fixture(params=["file", "s3"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    store = QuickStore(tmp_path / "hotplate.db")
    with stores.store(request.param, tmp_path) as blobs:
        claim(blobs, "ours", set, shared=True)
        unpacking = Unpacking(store, blobs, ArchiveLimits())
        yield Place(store, blobs, unpacking)
        await unpacking.close()
    store.close()


async def test_what_was_pushed_again_goes_after_its_grace_and_what_is_named_stays(
    place: Place,
) -> None:
    old, new = await place.push(b"old"), await place.push(b"new")
    assert await place.collector(grace_s=3600).collect() == Collected(), "all is young"
    collector = place.collector()
    would = await collector.collect(dry_run=True)
    assert (would.manifests, would.blobs) == (1, 1), "what both have stays"
    assert would.bytes > 0
    assert place.content(old) == b"old"
    place.node.unwanted = {"environment": 100}
    assert await collector.collect() == would.plus(Collected(environments=1, bytes=100))
    assert place.blobs.contents.listing().manifests.keys() == {new}
    assert place.content(new) == b"new"
    assert await collector.collect() == Collected()


@pytest.mark.parametrize("place", ["file"], indirect=True)
async def test_content_that_was_pushed_again_takes_the_room_of_both_for_the_grace(
    place: Place,
) -> None:
    for version in ("1", "2"):
        await place.push(b"same", version)
    both = place.blobs.used_bytes()
    await place.collector(grace_s=3600).collect()
    assert place.blobs.used_bytes() == both
    await place.collector().collect()
    assert place.blobs.used_bytes() == both - len(b"same")


async def test_what_runs_stays_and_nothing_goes_while_that_is_not_known(place: Place) -> None:
    old = await place.push(b"old")
    await place.push(b"new")
    place.running = None
    with pytest.raises(Busy, match="not all deployments are read yet"):
        await place.collector().collect()
    place.running = {old}
    assert await place.collector().collect() == Collected()
    assert place.content(old) == b"old"


async def test_nothing_goes_while_a_backup_runs(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotplate.platform.upkeep.collector.TRIES", 2)
    await place.push(b"old")
    await place.push(b"new")
    hold = place.blobs.hold()
    await asyncio.to_thread(hold.__enter__)
    with pytest.raises(Busy, match="a backup copies them"):
        await place.collector().collect()
    await asyncio.to_thread(hold.__exit__)
    assert (await place.collector().collect()).manifests == 1


async def test_of_a_deleted_organization_nothing_is_left(place: Place) -> None:
    await place.push(b"hers")
    open_upload = place.store.uploads.open(
        place.store.artifacts.page(1, Kind.MODEL)[0][0].id, resume=False
    )
    with place.blobs.part_writer(open_upload.id, 1) as part:
        part.write(b"a part that came")
        part.commit()
    assert (await place.collector().collect()) == Collected(), "it may go on"
    place.store.organizations.delete("acme", force=True)
    place.store.organizations.finish_deletions()
    await place.collector().collect()
    there = place.blobs.contents.listing()
    assert not (there.manifests or there.blobs or there.uploads or there.incoming)


async def test_nothing_of_another_installation_goes(place: Place) -> None:
    await place.push(b"theirs")
    await place.push(b"theirs, newer")
    before = place.blobs.contents.listing()
    place.blobs.contents.put_claim({"installation": "theirs"})
    with pytest.raises(Busy, match="another installation's"):
        await place.collector().collect()
    assert place.blobs.contents.listing() == before


async def test_nothing_goes_while_a_wanted_manifest_cannot_be_read(
    place: Place, tmp_path: Path
) -> None:
    if not place.blobs.url.startswith("file"):
        pytest.skip("the same everywhere")
    named = await place.push(b"old")
    await place.push(b"new", version="2")
    (tmp_path / "store" / "manifests" / f"{named}.json").write_text("damaged")
    before = place.blobs.contents.listing()
    with pytest.raises(ChunkCorrupt):
        await place.collector().collect()
    assert place.blobs.contents.listing() == before


class Watch:
    """Has one thing wait that is about to be done, until it is let go on."""

    def __init__(self, owner: object, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        done: Callable[..., object] = getattr(owner, name)

        def waits(*given: object) -> object:
            self.reached.set()
            assert self.go_on.wait(PATIENCE_S)
            return done(*given)

        monkeypatch.setattr(owner, name, waits)


@pytest.mark.parametrize("first", ["put_manifest", "remove_blob"])
async def test_a_push_never_uses_what_is_just_being_removed(
    place: Place, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever comes first: the push that finds the blob there, or the removal of it."""
    await place.push(b"the same")
    await place.push(b"another")
    if first == "put_manifest":
        watch = Watch(place.blobs, first, monkeypatch)
        monkeypatch.setattr("hotplate.platform.upkeep.collector.TRIES", 2)
        again = place.begin(b"the same")
        await asyncio.to_thread(watch.reached.wait, PATIENCE_S)
        with pytest.raises(Busy):
            await place.collector().collect()
        watch.go_on.set()
    else:
        watch = Watch(place.blobs.contents, first, monkeypatch)
        collecting = asyncio.create_task(place.collector().collect())
        await asyncio.to_thread(watch.reached.wait, PATIENCE_S)
        again = place.begin(b"the same")
        await place.unpacking.wait(again, 0.3)
        assert place.unpacking.busy(again.id), "it waits"
        watch.go_on.set()
        assert (await collecting).blobs == 1
    done = await place.unpacking.wait(again, PATIENCE_S)
    await place.collector().collect()
    assert place.content(done.files) == b"the same"


async def test_what_is_put_here_again_after_the_listing_stays(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its blobs lay there before, and its manifest did not."""
    first = await place.push(b"the same")
    await place.push(b"another")
    place.blobs.contents.remove_manifest(first)
    listing, loop = place.blobs.contents.listing, asyncio.get_running_loop()

    def listing_then_push() -> Listing:
        found = listing()
        again = asyncio.run_coroutine_threadsafe(place.push(b"the same"), loop)
        assert again.result(PATIENCE_S) == first
        return found

    monkeypatch.setattr(place.blobs.contents, "listing", listing_then_push)
    await place.collector().collect()
    assert place.content(first) == b"the same"


async def test_pushes_and_collections_at_once_lose_nothing(place: Place) -> None:
    """One content under new versions again and again, while what nobody names is removed."""
    collector = place.collector()
    named = ""
    for number in range(4):
        collecting = asyncio.create_task(collector.collect())
        content = b"one" if number % 2 else b"two"
        done, collected = await asyncio.gather(
            place.push(content), collecting, return_exceptions=True
        )
        assert isinstance(done, str)
        assert isinstance(collected, Collected | Busy)
        named = done
        assert place.content(named) == content
    await collector.collect()
    assert place.blobs.contents.listing().manifests.keys() == {named}


class Mortal(StoreContents):
    """Kills its process before the removal of that number."""

    left = 0

    def remove_blob(self, digest: str) -> None:
        self._live()
        super().remove_blob(digest)

    def remove_manifest(self, digest: str) -> None:
        self._live()
        super().remove_manifest(digest)

    def _live(self) -> None:
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1


async def test_a_run_that_is_killed_loses_nothing_and_the_next_one_finishes(
    tmp_path: Path,
) -> None:
    file, url = tmp_path / "hotplate.db", f"file://{tmp_path / 'store'}"
    store, blobs = QuickStore(file), BlobStore(url)
    claim(blobs, "ours", set, shared=True)
    place = Place(store, blobs, Unpacking(store, blobs, ArchiveLimits()))
    for number in range(4):
        named = await place.push(f"version {number}".encode())
    await place.unpacking.close()
    store.close()
    kills = 0
    for number in range(6):
        kills += is_killed(file, url, after=number % 3)
        assert place.content(named) == b"version 3"
    assert kills > 0
    place.store = QuickStore(file)
    await place.collector().collect()
    there = blobs.contents.listing()
    assert there.manifests.keys() == {named} and len(there.blobs) == 2
    assert place.content(named) == b"version 3"
    place.store.close()


def is_killed(file: Path, url: str, after: int) -> bool:
    """Whether a process was killed that collects there, `after` so many removals."""
    child = os.fork()
    if child == 0:
        store, blobs = QuickStore(file), BlobStore(url)
        blobs.contents = mortal = Mortal(open_storage(url))
        mortal.left = after
        place = Place(store, blobs, Unpacking(store, blobs, ArchiveLimits()))
        # In a thread, whose loop is none of the parent's.
        thread = threading.Thread(target=lambda: asyncio.run(place.collector().collect()))
        thread.start()
        thread.join()
        os._exit(0)
    return os.waitpid(child, 0)[1] == signal.SIGKILL
