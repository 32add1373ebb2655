"""The disk tier after a power cut at any instant: right bytes are served, synced ones are kept.

Every change of a tier's folder is recorded while blobs are written, landed, mended and dropped.
Then each instant is brought about on another folder, in several ways: bytes and names that were
not synced are kept, lost, or torn. An agent's tier over that folder must serve right bytes.
"""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hotplate.cache.copies.blob_table import BlobTable
from hotplate.cache.copies.cached_blob import CachedBlob, OriginFile
from hotplate.cache.fetching.contents import Contents
from hotplate.cache.fetching.fetcher import Fetcher
from hotplate.cache.manifest import Blob
from hotplate.cache.metrics import Metrics
from hotplate.cache.origins.blob_source import FsspecOrigin
from hotplate.cache.tiers.arena import Arena
from hotplate.cache.tiers.disk import DiskTier
from hotplate.cache.tiers.durable_folder import DurableFolder
from tests.support.cache.fakes import PacedOrigin, blob_of, publish, random_bytes

CONTENTS = [random_bytes(size, size) for size in (5000, 9000, 1, 70_000)]
BLOBS = [blob_of(content) for content in CONTENTS]
RIGHT = {blob.digest: content for blob, content in zip(BLOBS, CONTENTS, strict=True)}


@dataclass
class Instant:
    """What a disk may have at one instant: of each inode, synced bytes and bytes on their way."""

    names: dict[str, int]
    synced_names: dict[str, int]
    written: dict[int, bytes]
    synced: dict[int, bytes]
    safe: set[str]
    """Digests of blobs whose bytes and name are synced."""


@dataclass
class Recording:
    instants: list[Instant] = field(default_factory=list)
    synced_names: dict[str, int] = field(default_factory=dict)
    synced_bytes: dict[int, bytes] = field(default_factory=dict)

    def note(self, root: Path) -> None:
        names = {path.name: path.stat().st_ino for path in root.iterdir()}
        found = {path.stat().st_ino: path.read_bytes() for path in root.iterdir()}
        safe = {
            name
            for name, inode in self.synced_names.items()
            if names.get(name) == inode and self.synced_bytes.get(inode) == RIGHT.get(name, b"-")
        }
        self.instants.append(
            Instant(names, dict(self.synced_names), found, dict(self.synced_bytes), safe)
        )


def recorder(recording: Recording) -> type[DurableFolder]:
    class Recorder(DurableFolder):
        """The tier's folder, with a note after each change."""

        def create(self, purpose: str, size_bytes: int) -> tuple[int, str]:
            made = super().create(purpose, size_bytes)
            recording.note(self.root)
            return made

        def copy(self, fd: int, source_fd: int, offset: int, length: int) -> None:
            super().copy(fd, source_fd, offset, length // 2)
            recording.note(self.root)
            super().copy(fd, source_fd, offset + length // 2, length - length // 2)
            recording.note(self.root)

        def sync(self, fd: int) -> None:
            super().sync(fd)
            inode = os.fstat(fd).st_ino
            recording.synced_bytes[inode] = os.pread(fd, 1 << 20, 0)
            recording.note(self.root)

        def rename(self, old: str, new: str) -> None:
            super().rename(old, new)
            recording.note(self.root)

        def sync_names(self) -> None:
            super().sync_names()
            recording.synced_names = {p.name: p.stat().st_ino for p in self.root.iterdir()}
            recording.note(self.root)

        def remove(self, name: str) -> None:
            super().remove(name)
            recording.synced_names.pop(name, None)  # a removal may be on disk already
            recording.note(self.root)

    return Recorder


def make(root: Path, origin: PacedOrigin, folder: type[DurableFolder]) -> BlobTable:
    clock = asyncio.get_running_loop().time
    disk = DiskTier(root, folder=folder)
    contents = Contents(1, clock)
    Fetcher(1, contents, clock, Metrics())
    return BlobTable(Arena(1 << 20), disk, contents, 30)


def bring(blob_table: BlobTable, origin: PacedOrigin, blob: Blob, streamed: bool) -> CachedBlob:
    source = origin.source(blob)
    return blob_table.bring(OriginFile(blob, source, blob.digest, blob.digest[:9]), streamed)


async def record(root: Path, origin: PacedOrigin) -> Recording:
    """Blobs written behind and landed; one damaged and mended, one dropped and brought again."""
    recording = Recording()
    blob_table = make(root, origin, recorder(recording))
    for number, blob in enumerate(BLOBS):
        await bring(blob_table, origin, blob, streamed=number != 1).until_on_disk()
    await blob_table.close(5)
    damaged = root / BLOBS[0].digest
    damaged.chmod(0o644)
    with damaged.open("r+b") as file:
        file.write(b"wrong")
    recording.synced_bytes[damaged.stat().st_ino] = damaged.read_bytes()
    blob_table = make(root, origin, recorder(recording))
    await bring(blob_table, origin, BLOBS[0], streamed=True).until_on_disk()
    await blob_table.drop(BLOBS[2].digest)
    await bring(blob_table, origin, BLOBS[2], streamed=True).until_on_disk()
    await blob_table.close(5)
    return recording


def cut(instant: Instant, root: Path, rng: random.Random) -> None:
    """One of the ways in which the power may have gone at that instant."""
    root.mkdir()
    names = rng.choice((instant.names, instant.synced_names, instant.names))
    for name, inode in names.items():
        kept = instant.synced.get(inode, b"")
        written = instant.written.get(inode, kept)
        at = rng.randrange(len(written) + 1)
        ways = (written, kept, written[:at] + bytes(len(written) - at), kept[:at], written)
        (root / name).write_bytes(kept if written == kept else rng.choice(ways))


@pytest.fixture
def origin(tmp_path: Path) -> PacedOrigin:
    publish(tmp_path / "store", {str(n): content for n, content in enumerate(CONTENTS)})
    return PacedOrigin(FsspecOrigin(f"file://{tmp_path}/store"))


async def test_after_a_power_cut_at_any_instant_right_bytes_are_served_and_synced_ones_kept(
    tmp_path: Path, origin: PacedOrigin
) -> None:
    recording = await record(tmp_path / "disk", origin)
    rng = random.Random(7)
    lost = kept = 0
    for number, instant in enumerate(recording.instants):
        for way in range(3):
            root = tmp_path / f"{number}-{way}"
            cut(instant, root, rng)
            origin.reads.clear()
            blob_table = make(root, origin, DurableFolder)
            for blob in BLOBS:
                cached = bring(blob_table, origin, blob, streamed=rng.random() < 0.5)
                await cached.until_on_disk()
                async with blob_table.lend(cached) as fd:
                    assert os.pread(fd, 1 << 20, 0) == RIGHT[blob.digest]
                assert blob_table.disk.path(blob.digest).read_bytes() == RIGHT[blob.digest]
            again = {digest for digest, _ in origin.reads}
            assert not again & instant.safe, "what was synced is not fetched again"
            lost += len(again)
            kept += len(instant.safe)
            await blob_table.close(1)
    assert len(recording.instants) > 20 and lost > 50 and kept > 50, "the faults happened"
