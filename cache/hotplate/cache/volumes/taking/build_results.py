"""What builds in pods have made, taken over from their folders and published.

The folder is an `emptyDir` in which somebody has written whom we do not trust. Its bytes become
blobs of this node first, each read once; what is stored at the origin are these. Nobody names any
of it before the end, which is the note that the pod's ticket says: so an agent that is killed
leaves nothing half, and the next call does it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from hotplate.cache.catalog.trees import Trees
from hotplate.cache.errors import BadEnvironment
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.volumes.claim import Claim
from hotplate.cache.volumes.kubelet import Kubelet
from hotplate.cache.volumes.taking import built_environment
from hotplate.cache.volumes.taking.foreign_tree import ForeignTree, TreeLimits
from hotplate.cache.volumes.taking.publication import Publication
from hotplate.cache.volumes.taking.take_over import take_over
from hotplate.cache.volumes.taking.tasks import Beat, VolumeTasks
from hotplate.cache.volumes.ticket import USER
from hotplate.machine.background import thread_to_its_end

log = logging.getLogger(__name__)

RESULT = "env"
"""The name of the pod's `emptyDir`."""


class BuildResults:
    """Those of one node. Lives on the event loop."""

    def __init__(
        self,
        trees: Trees,
        kubelet: Kubelet,
        store: Callable[[], BlobStore],
        limits: TreeLimits | None = None,
    ) -> None:
        """`store` opens the blob store, and may raise CacheError."""
        self._trees = trees
        self._kubelet = kubelet
        self._store = store
        self._limits = limits or TreeLimits()
        self._tasks = VolumeTasks[str]("what was built")

    async def publish(self, claim: Claim) -> str:
        """Publishes what a pod has built; the manifest. Joins the call that began it, if one did.

        Raises CacheError.
        """
        return await self._tasks.run(claim.volume, partial(self._publish, claim))

    async def stop(self, volume: str) -> None:
        """The pod has gone; returns when nothing of it is read any longer."""
        await self._tasks.stop(volume)

    async def close(self) -> None:
        await self._tasks.close()

    async def _publish(self, claim: Claim, beat: Beat) -> str:
        publication = Publication(self._store(), claim.ticket)
        if (earlier := await asyncio.to_thread(publication.earlier)) is not None:
            return earlier
        with self._trees.index.held() as held:
            taken = await take_over(self._trees, partial(self._open, claim), held, beat)
            sending = asyncio.to_thread(
                publication.publish, taken, self._trees.blob_table.disk, beat
            )
            digest = await thread_to_its_end(sending)
            if digest == taken.manifest.digest:
                await self._trees.keep(taken.manifest)
        size_bytes = taken.manifest.size_bytes
        log.info("%s is published: %s, of %d bytes", claim.ticket.note, digest, size_bytes)
        return digest

    def _open(self, claim: Claim) -> ForeignTree:
        """Raises CacheError."""
        root = self._kubelet.empty_dir(claim.target, RESULT)
        if not root.is_dir():
            raise BadEnvironment("the pod has no emptyDir of the name 'env' for its environment")
        tree = ForeignTree(root, built_environment.HOME, USER, self._limits)
        try:
            built_environment.check(tree, str(claim.ticket.about.get("interpreter", "")))
        except BaseException:  # also when interrupted: closed, and raised again
            tree.close()
            raise
        return tree
