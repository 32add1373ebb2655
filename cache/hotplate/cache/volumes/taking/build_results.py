"""What builds in pods have made, taken over from their folders and published.

The folder is an `emptyDir` in which somebody has written whom we do not trust. Its bytes become
blobs of this node first, each read once; what is stored at the origin are these. Nobody names any
of it before the end, which is the note that the pod's ticket says: so an agent that is killed
leaves nothing half, and the next call does it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from dataclasses import dataclass
from functools import cached_property

from hotplate.cache.catalog.trees import Trees
from hotplate.cache.copies.taken_blobs import TakenBlobs
from hotplate.cache.errors import BadEnvironment, CacheError
from hotplate.cache.manifest import Manifest
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.store.packing import packed
from hotplate.cache.volumes import built_environment
from hotplate.cache.volumes.claim import Claim
from hotplate.cache.volumes.foreign_tree import ForeignTree, TreeLimits
from hotplate.cache.volumes.kubelet import Kubelet
from hotplate.cache.volumes.publication import Publication
from hotplate.cache.volumes.ticket import USER
from hotplate.machine.background import retrieve_error, thread_to_its_end

log = logging.getLogger(__name__)

RESULT = "volumes/kubernetes.io~empty-dir/env"
"""Where kubelet has the pod's `emptyDir` of the name `env`, below the pod's folder."""


@dataclass(frozen=True)
class _TakeOver:
    task: asyncio.Task[str]
    stopped: threading.Event


class BuildResults:
    """Those of one node. Lives on the event loop."""

    def __init__(
        self, trees: Trees, kubelet: Kubelet, origin_url: str, limits: TreeLimits | None = None
    ) -> None:
        self._trees = trees
        self._kubelet = kubelet
        self._origin_url = origin_url
        self._limits = limits or TreeLimits()
        self._running: dict[str, _TakeOver] = {}
        self._turn = asyncio.Lock()  # each may take much memory

    async def publish(self, claim: Claim) -> str:
        """Publishes what a pod has built; the manifest. Joins the call that began it, if one did.

        Raises CacheError.
        """
        running = self._running.get(claim.volume)
        if running is None:
            stopped = threading.Event()
            task = asyncio.create_task(self._publish(claim, stopped))
            task.add_done_callback(retrieve_error)
            task.add_done_callback(lambda _: self._running.pop(claim.volume, None))
            running = self._running[claim.volume] = _TakeOver(task, stopped)
        return await asyncio.shield(running.task)

    async def stop(self, volume: str) -> None:
        """The pod has gone; returns when nothing of it is read any longer."""
        if (running := self._running.get(volume)) is not None:
            running.stopped.set()
            running.task.cancel()
            await asyncio.wait({running.task})

    async def close(self) -> None:
        for volume in list(self._running):
            await self.stop(volume)

    async def _publish(self, claim: Claim, stopped: threading.Event) -> str:
        try:
            async with self._turn:
                return await self._take_over(claim, stopped)
        except CacheError as error:
            log.warning("what volume %s has built is not published: %s", claim.volume, error)
            raise
        except Exception as error:  # whatever lies there, the build is to be told
            log.exception("what volume %s has built is not published", claim.volume)
            raise CacheError(f"the agent cannot take it over ({error!r})") from error

    async def _take_over(self, claim: Claim, stopped: threading.Event) -> str:
        publication = Publication(self._store, claim.ticket)
        if (earlier := await asyncio.to_thread(publication.earlier)) is not None:
            return earlier

        def beat() -> None:
            if stopped.is_set():
                raise CacheError("the pod has gone")

        with self._trees.index.held() as held, contextlib.ExitStack() as opened:
            # The stack closes it, also where this task is cancelled while the thread opens it.
            tree = await thread_to_its_end(asyncio.to_thread(self._open, claim, opened))
            space = await self._trees.blob_table.reserve(sum(tree.sizes.values()))
            opened.callback(space.release)
            blobs = TakenBlobs(self._trees.blob_table.disk, space, held)
            manifest: Manifest = await thread_to_its_end(
                asyncio.to_thread(packed, tree, blobs, beat)
            )
            opened.close()
            given = (manifest, blobs.blobs.values(), self._trees.blob_table.disk, beat)
            digest = await thread_to_its_end(asyncio.to_thread(publication.publish, *given))
            if digest == manifest.digest:
                await self._trees.keep(manifest)
        log.info("%s is published: %s, of %d bytes", claim.ticket.note, digest, manifest.size_bytes)
        return digest

    def _open(self, claim: Claim, opened: contextlib.ExitStack) -> ForeignTree:
        """Raises CacheError."""
        root = self._kubelet.pod_folder(claim.target) / RESULT
        if not root.is_dir():
            raise BadEnvironment("the pod has no emptyDir of the name 'env' for its environment")
        tree = ForeignTree(root, built_environment.HOME, USER, self._limits)
        opened.enter_context(tree)
        built_environment.check(tree, str(claim.ticket.about.get("interpreter", "")))
        return tree

    @cached_property
    def _store(self) -> BlobStore:
        try:
            return BlobStore(self._origin_url)
        except (ImportError, ValueError) as exc:
            raise CacheError(f"nothing can be stored at the origin ({exc})") from exc
