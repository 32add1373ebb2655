"""The trees that are wanted on this node, and how far each one has got."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Set
from pathlib import Path
from typing import Protocol

from hotplate.cache.catalog.manifest_index import ManifestIndex
from hotplate.cache.catalog.tree_folder import TreeFolder
from hotplate.cache.catalog.tree_state import TreeState, blob_digests
from hotplate.cache.catalog.url_index import UrlIndex
from hotplate.cache.catalog.view_place import ViewPlace
from hotplate.cache.copies.blob_table import BlobTable
from hotplate.cache.copies.cached_blob import CachedBlob, OriginFile
from hotplate.cache.errors import CacheError, UnknownManifest
from hotplate.cache.manifest import Blob, Manifest, ManifestEntry
from hotplate.cache.origins.blob_source import ByteSource, Origin, checked_manifest
from hotplate.cache.tiers.disk import disk_error
from hotplate.cache.tiers.durable_folder import DurableFolder
from hotplate.machine.background import retrieve_error

log = logging.getLogger(__name__)


GIVEN_UP_S = 60.0
"""A tree that was asked for so lately does not leave a full disk: a pod may be about to see it."""


class _Shown:
    """A manifest whose files are borrowed one by one."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.entries = {entry.path: entry for entry in manifest.entries}


class Shows(Protocol):
    """Shows trees to pods."""

    def needed(self) -> Set[str]:
        """Digests of those that are not to be removed."""

    def mounted(self) -> Set[str]:
        """Digests of those that pods see now: what is whole there stays whole."""


class Trees:
    """The trees of this node. Runs on the event loop."""

    def __init__(
        self,
        data: Path,
        origin: Origin,
        blob_table: BlobTable,
        ledger: UrlIndex,
        *,
        index: ManifestIndex,
        view: ViewPlace,
    ) -> None:
        """`index` is filled by `sweep`; `view` says where trees are seen while they arrive."""
        self.trees_root = data / "trees"
        self.blob_table = blob_table
        self.index = index
        self._view = view
        self._manifests = data / "manifests"
        self._origin = origin
        self._disk = blob_table.disk
        self._ledger = ledger
        self._trees: dict[str, TreeState] = {}
        self._starting: dict[str, asyncio.Task[TreeState]] = {}
        self._shown: dict[str, _Shown] = {}
        self._asked_at: dict[str, float] = {}  # loop time; for trees of earlier runs, our start
        self.shows: Shows | None = None
        """Who mounts trees elsewhere; None = nobody."""
        self._changing = asyncio.Lock()  # a tree must not use what the end of another is dropping
        self._began = asyncio.get_running_loop().time()
        for folder in (self.trees_root, self._manifests):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def trees(self) -> list[TreeState]:
        return list(self._trees.values())

    def wanted_blobs(self) -> set[str]:
        """Digests of the blobs that a tree or URL of this node needs."""
        return self._ledger.digests() | self.index.blobs()

    def kept_manifest(self, digest: str) -> Manifest:
        """A manifest of the index. Raises CacheError when its file is damaged."""
        try:
            data = (self._manifests / f"{digest}.json").read_bytes()
        except OSError as exc:
            raise CacheError(f"manifest {digest} cannot be read ({exc.strerror})") from exc
        return checked_manifest(digest, data)

    def source(self, blob: Blob) -> ByteSource:
        """The source of a tree's blob."""
        return self._origin.source(blob)

    def sweep(self) -> None:
        """Reads the manifests kept here, and deletes blobs that neither they nor the ledger name.

        A killed agent may have deleted a tree half. To be called once, first.
        """
        damaged = set()
        for path in self._manifests.iterdir():
            if path.suffix != ".json":
                path.unlink()  # it is half written
                continue
            try:
                manifest = checked_manifest(path.stem, path.read_bytes())
                self.index.put(path.stem, blob_digests(manifest).values())
            except CacheError as error:
                damaged.add(path.stem)
                log.warning("%s; its tree stays, and is asked of the origin again", error)
        for folder in self.trees_root.iterdir():
            if folder.name not in self.index and folder.name not in damaged:
                shutil.rmtree(folder, ignore_errors=True)
        if not damaged:  # else it is unknown which blobs it names
            for digest in set(self._disk.digests()).difference(self.wanted_blobs()):
                self._disk.discard(digest)

    def idle_s(self) -> dict[str, float]:
        """For how many seconds each tree that is kept here was not asked for, by digest."""
        now = asyncio.get_running_loop().time()
        return {digest: now - self._asked_at.get(digest, self._began) for digest in self.index}

    async def bring(self, digest: str) -> TreeState:
        """Starts to bring a tree here, or joins one that is under way; a failed one is tried again.

        Raises UnknownManifest, ChunkCorrupt, OriginUnavailable, NoSpace.
        """
        self._asked_at[digest] = asyncio.get_running_loop().time()
        tree = self._trees.get(digest)
        if tree is not None and tree.error is None:
            return tree
        task = self._starting.get(digest)
        if task is None:
            task = self._starting[digest] = asyncio.create_task(self._start(digest))
            task.add_done_callback(lambda _: self._starting.pop(digest, None))
        return await asyncio.shield(task)

    def get(self, digest: str) -> TreeState:
        """Raises UnknownManifest for a tree that was not asked for."""
        try:
            return self._trees[digest]
        except KeyError:
            raise UnknownManifest(f"this node has no tree {digest}; PUT it first") from None

    async def locate(
        self, path: str, allowed: Set[str] | None = None
    ) -> tuple[TreeState, ManifestEntry]:
        """The tree and entry of a file below the trees' folder, brought here if need be.

        Raises UnknownManifest for any other path, and for trees that are not `allowed`.
        """
        refusal = UnknownManifest(f"{path} is no file of a tree of this node; PUT its tree first")
        try:
            digest, *parts = Path(path).relative_to(self.trees_root).parts
        except ValueError:
            raise refusal from None
        if digest not in self.index or (allowed is not None and digest not in allowed):
            raise refusal
        tree = await self.bring(digest)
        entry = tree.entries.get("/".join(parts))
        if entry is None or entry.blob is None or entry.part is not None:
            raise refusal
        return tree, entry

    async def show(self, digest: str) -> Manifest:
        """Keeps a tree's manifest here, so that its files can be borrowed one by one; brings none
        yet.

        Raises UnknownManifest, ChunkCorrupt, OriginUnavailable.
        """
        self._asked_at[digest] = asyncio.get_running_loop().time()
        if digest in self._shown:
            return self._shown[digest].manifest
        manifest = await asyncio.to_thread(self._manifest, digest)
        async with self._changing:
            self.index.put(digest, blob_digests(manifest).values())
            self._shown[digest] = _Shown(manifest)
        return manifest

    async def keep(self, manifest: Manifest) -> None:
        """Keeps a manifest here whose blobs are on disk already, so that they stay. Raises
        CacheError."""
        digest = manifest.digest
        await asyncio.to_thread(self._write, digest, manifest)
        async with self._changing:
            self._asked_at[digest] = asyncio.get_running_loop().time()
            self.index.put(digest, blob_digests(manifest).values())

    def verified_bytes(self, manifest: Manifest) -> int:
        """How many bytes of a tree's blobs are here."""
        return self.blob_table.verified_bytes(blob.digest for blob in set(manifest.blobs()))

    async def borrow(self, digest: str, path: str) -> CachedBlob:
        """The node's copy of one file of a tree that is kept here; only that file is brought.

        Raises UnknownManifest for any other path.
        """
        if digest not in self.index:
            raise UnknownManifest(f"this node has no tree {digest}; PUT it first")
        if digest not in self._shown:
            self._shown[digest] = _Shown(await asyncio.to_thread(self._manifest, digest))
        entry = self._shown[digest].entries.get(path)
        if entry is None or entry.blob is None:
            raise UnknownManifest(f"tree {digest} has no file {path}")
        return self._bring_file(entry, entry.blob.digest)

    def _bring_file(self, entry: ManifestEntry, key: str) -> CachedBlob:
        assert entry.blob is not None
        file = OriginFile(entry.blob, self._origin.source(entry.blob), key, entry.path)
        return self.blob_table.bring(file, entry.streamed)

    async def delete(self, digest: str, idle_s: float = 0.0) -> bool:
        """Removes a tree, and the blobs that no other tree or URL of this node needs.

        One that was asked for in the last `idle_s` stays, and one that a pod sees. Returns whether
        it was removed.
        """
        if digest not in self.index:
            raise UnknownManifest(f"this node has no tree {digest}")
        async with self._changing:
            asked = self.idle_s().get(digest, 0.0) < idle_s or digest in self._starting
            needed = self.shows is not None and digest in self.shows.needed()
            if asked or needed or digest not in self.index:
                return False
            self._asked_at.pop(digest, None)
            self._shown.pop(digest, None)
            unused = self.index.remove(digest) - self.wanted_blobs()
            (self._manifests / f"{digest}.json").unlink(missing_ok=True)
            tree = self._trees.pop(digest, None)
            if tree is not None:
                await tree.cancel()
            await asyncio.to_thread(shutil.rmtree, self.trees_root / digest, ignore_errors=True)
            for blob_digest in unused:
                await self.blob_table.drop(blob_digest)
        return True

    async def give_up(self) -> bool:
        """Removes the tree that nobody has asked for longest, of those that no pod sees and that
        are not on their way; whether there was one."""
        idle = [
            (idle_s, digest)
            for digest, idle_s in self.idle_s().items()
            if digest not in self._trees or self._trees[digest].whole.done()
        ]
        for idle_s, digest in sorted(idle, reverse=True):
            if digest in self.index and await self.delete(digest, GIVEN_UP_S):
                log.info("tree %s leaves a full disk: not asked for in %.0f s", digest, idle_s)
                return True
        return False

    async def close(self, flush_s: float) -> None:
        await self.blob_table.close(flush_s)
        for tree in self.trees:
            await tree.cancel()

    async def _start(self, digest: str) -> TreeState:
        manifest = await asyncio.to_thread(self._manifest, digest)
        async with self._changing:
            return await self._hold(digest, manifest)

    async def _hold(self, digest: str, manifest: Manifest) -> TreeState:
        self.index.put(digest, blob_digests(manifest).values())
        old = self._trees.get(digest)
        if old is not None:
            await old.cancel()
        view = self._view.tree_root(digest)
        folder = TreeFolder(self.trees_root, digest, manifest, self._disk, view)
        # Leases on the failed tree see the files of the new one.
        linked = old.linked if old is not None else set()
        tree = self._trees[digest] = TreeState(digest, manifest, folder, linked)
        files = [entry for entry in manifest.entries if entry.blob is not None]
        for entry in sorted(files, key=lambda entry: entry.streamed):
            tree.cached_blobs[entry.path] = self._bring_file(entry, tree.digests[entry.path])
        tree.ready = asyncio.create_task(self._make_ready(tree))
        tree.whole = asyncio.create_task(self._make_whole(tree))
        tree.ready.add_done_callback(retrieve_error)
        tree.whole.add_done_callback(retrieve_error)
        return tree

    async def _make_ready(self, tree: TreeState) -> None:
        for path, cached in tree.cached_blobs.items():
            if not tree.entries[path].streamed:
                await cached.until_on_disk()
        on_disk = {one.key for one in tree.cached_blobs.values() if one.on_disk}
        mounted = self.shows is not None and tree.digest in self.shows.mounted()
        linked = await asyncio.to_thread(tree.folder.build, tree.digests, on_disk, mounted=mounted)
        tree.linked.clear()
        tree.linked.update(linked)
        for path in linked:
            tree.cached_blobs[path].notify()

    async def _make_whole(self, tree: TreeState) -> None:
        await asyncio.shield(tree.ready)
        try:
            async with asyncio.TaskGroup() as group:
                for path in tree.cached_blobs.keys() - tree.linked:
                    group.create_task(self._link(tree, path))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _link(self, tree: TreeState, path: str) -> None:
        cached = tree.cached_blobs[path]
        await cached.until_on_disk()
        await asyncio.to_thread(tree.folder.link, tree.entries[path], cached.key)
        tree.linked.add(path)
        cached.notify()

    def _manifest(self, digest: str) -> Manifest:
        """The manifest from the node's own copy, or from the origin, which makes one."""
        with contextlib.suppress(CacheError):
            return self.kept_manifest(digest)
        manifest = self._origin.manifest(digest)
        self._write(digest, manifest)
        return manifest

    def _write(self, digest: str, manifest: Manifest) -> None:
        try:
            DurableFolder(self._manifests).put(f"{digest}.json", manifest.to_bytes())
        except OSError as exc:
            raise disk_error(self._manifests, manifest.size_bytes, exc) from exc
