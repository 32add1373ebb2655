"""A folder that a pod has written becomes a tree of this node, each byte read once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass

from hotplate.cache.catalog.trees import Trees
from hotplate.cache.copies.taken_blobs import TakenBlobs
from hotplate.cache.manifest import Blob, Manifest
from hotplate.cache.store.packing import packed
from hotplate.cache.volumes.taking.foreign_tree import ForeignTree
from hotplate.cache.volumes.taking.tasks import Beat
from hotplate.machine.background import thread_to_its_end


@dataclass(frozen=True)
class TakenTree:
    """A tree whose blobs are on this node's disk."""

    manifest: Manifest
    blobs: Collection[Blob]


async def take_over(
    trees: Trees, opened: Callable[[], ForeignTree], held: set[str], beat: Beat
) -> TakenTree:
    """The tree that `opened` opens on a thread; its blobs are added to `held`. Raises
    CacheError."""
    with contextlib.ExitStack() as stack:

        def enter() -> ForeignTree:
            return stack.enter_context(opened())

        # The stack closes it, also where this task is cancelled while the thread opens it.
        tree = await thread_to_its_end(asyncio.to_thread(enter))
        space = await trees.blob_table.reserve(sum(tree.sizes.values()))
        stack.callback(space.release)
        blobs = TakenBlobs(trees.blob_table.disk, space, held)
        manifest = await thread_to_its_end(asyncio.to_thread(packed, tree, blobs, beat))
    return TakenTree(manifest, blobs.blobs.values())
