"""What replicas of this node have learnt, taken over from their folders and kept for later ones.

A replica's own folder is an `emptyDir`; it has `modules.json` and `compiled/` there, which its
bento's code may have written as well. A start never fails for want of a lesson.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from hotplate.cache.catalog.trees import Trees
from hotplate.cache.errors import CacheError
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.volumes.claim import Claim
from hotplate.cache.volumes.kubelet import Kubelet
from hotplate.cache.volumes.taking.foreign_tree import ForeignTree, TreeLimits
from hotplate.cache.volumes.taking.lesson import Lesson, lesson_in, module_names, note_of, noted
from hotplate.cache.volumes.taking.links import TreeLinks
from hotplate.cache.volumes.taking.take_over import TakenTree, take_over
from hotplate.cache.volumes.taking.tasks import Beat, VolumeTasks
from hotplate.cache.volumes.taking.uploads import BlobUploads
from hotplate.cache.volumes.ticket import USER, Ticket, Use
from hotplate.machine import foreign_folder
from hotplate.machine.background import thread_to_its_end

log = logging.getLogger(__name__)

OWN = "scratch"
"""The name of the replica's `emptyDir`."""
MODULES, COMPILED = "modules.json", "compiled"
"""What is looked at in there; and what the volume shows of a lesson."""
HOME = f"/scratch/{COMPILED}"
MODULES_BYTES = 1 << 20
LIMITS = TreeLimits(size_bytes=1 << 30, entries=20_000, depth=16)
"""Of what one replica has compiled: far more than a large model's kernels, and too little to fill
the store."""
NOTE_S, TAKE_S = 3.0, 10.0
"""How long a volume waits for the note of its lesson, and for what was compiled; to compile that
again takes longer."""
REPLACED_S = 600.0
"""What was given to a pod so lately stays here."""
PAUSE_S = 10.0
"""A replica's folder is not looked at more often."""


class Lessons:
    """Those of one node. Lives on the event loop."""

    def __init__(
        self,
        trees: Trees,
        kubelet: Kubelet,
        store: Callable[[], BlobStore],
        gpu: str,
    ) -> None:
        """`gpu` names the node's kind; `store` opens the blob store, and may raise CacheError."""
        self._trees = trees
        self._kubelet = kubelet
        self._store = store
        self._gpu = gpu
        self._tasks = VolumeTasks[None]("what was learnt")
        self._kept_at: dict[str, float] = {}
        # An origin that hangs must keep no other threads busy.
        self._looks = ThreadPoolExecutor(2, "lessons")

    async def of(self, ticket: Ticket) -> Lesson:
        """What is known for the pods of a ticket; what was compiled is on this node's disk."""
        if ticket.use is not Use.REPLICA:
            return Lesson()
        try:
            async with asyncio.timeout(NOTE_S):
                loop = asyncio.get_running_loop()
                lesson = await loop.run_in_executor(self._looks, self._noted, ticket)
            if lesson.compiled:
                async with asyncio.timeout(TAKE_S):
                    tree = await self._trees.bring(lesson.compiled)
                    await tree.until(tree.whole)
            return lesson
        except (CacheError, TimeoutError) as error:
            log.warning("a pod starts without what others have learnt: %r", error)
            return Lesson()

    async def keep(self, claim: Claim) -> None:
        """Keeps what a pod's replica has learnt, in place of what was known. Raises CacheError."""
        now = asyncio.get_running_loop().time()
        if now - self._kept_at.get(claim.volume, -PAUSE_S) < PAUSE_S:
            raise CacheError(f"it was looked at less than {PAUSE_S:g} s ago; ask later")
        self._kept_at[claim.volume] = now
        await self._tasks.run(claim.volume, partial(self._keep, claim))

    async def stop(self, volume: str) -> None:
        """The pod has gone; returns when nothing of it is read any longer."""
        await self._tasks.stop(volume)
        self._kept_at.pop(volume, None)

    async def close(self) -> None:
        await self._tasks.close()
        self._looks.shutdown(wait=False, cancel_futures=True)

    async def _keep(self, claim: Claim, beat: Beat) -> None:
        own = self._kubelet.empty_dir(claim.target, OWN)
        modules = await foreign_folder.aside(_modules, own)
        taken = None
        with self._trees.index.held() as held:
            if await asyncio.to_thread(_has_any, own / COMPILED):
                taken = await take_over(self._trees, partial(_opened, own / COMPILED), held, beat)
            noting = asyncio.to_thread(self._note, claim.ticket, modules, taken, beat)
            replaced = await thread_to_its_end(noting)
            if taken is not None:
                await self._trees.keep(taken.manifest)
        if replaced in self._trees.index:
            await self._trees.delete(replaced, REPLACED_S)

    def _noted(self, ticket: Ticket) -> Lesson:
        return lesson_in(self._store().get_note(note_of(ticket, self._gpu)))

    def _note(self, ticket: Ticket, modules: list[str], taken: TakenTree | None, beat: Beat) -> str:
        """The manifest that nobody is given any longer; "" if there is none."""
        store, name = self._store(), note_of(ticket, self._gpu)
        with store.hold() as hold:

            def beating() -> None:
                beat()
                hold.renew()

            before = store.get_note(name) or {}
            old = lesson_in(before)
            compiled = old.compiled
            if taken is not None and taken.manifest.digest != compiled:
                BlobUploads(store, self._trees.blob_table.disk, beating).send(taken.blobs)
                compiled = store.put_manifest(taken.manifest)
            lesson = Lesson(tuple(modules) or old.modules, compiled)
            note = noted(lesson, ticket, before)
            if note != before:
                store.put_note(name, note)
                log.info("%s is kept: %d modules, %s", name, len(lesson.modules), compiled)
            return old.compiled if old.compiled != compiled else ""


def _modules(own: Path) -> list[str]:
    """Those that the replica has noted; none where it has not, or nobody can read it."""
    with suppress(OSError, ValueError, RecursionError):
        return module_names(json.loads(foreign_folder.read(own / MODULES, MODULES_BYTES)))
    return []


def _has_any(folder: Path) -> bool:
    """Whether it is a folder that is not empty; the one above it may be foreign."""
    with suppress(OSError), foreign_folder.ForeignFolder.open(folder) as found:
        return bool(found.names(1))
    return False


def _opened(folder: Path) -> ForeignTree:
    """Raises CacheError."""
    tree = ForeignTree(folder, HOME, USER, LIMITS)
    try:
        TreeLinks(tree.links, "").check()
        tree.forget_times()
    except BaseException:  # also when interrupted: closed, and raised again
        tree.close()
        raise
    return tree
