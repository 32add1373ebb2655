"""The volumes of a node's pods: made of trees, mounted, found again, removed.

A volume's environment and bento are whole when it is there; of its models, weights may still be
on their way: these are files that nobody can open, and readers are given them through the socket.
A record of it is written before anything else is made and removed after all else is gone, so
whatever an agent leaves that is killed, the next one finds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hotplate.cache.catalog.trees import Trees
from hotplate.cache.errors import BadVolume, CacheError, VolumeNotReady
from hotplate.cache.leases.agent_socket import Door
from hotplate.cache.leases.lending import SOCKET_NAME, Lending
from hotplate.cache.tiers.disk import disk_error
from hotplate.cache.volumes import mounts
from hotplate.cache.volumes.claim import Claim
from hotplate.cache.volumes.kubelet import Kubelet
from hotplate.cache.volumes.records import VolumeRecord, VolumeRecords
from hotplate.cache.volumes.taking.build_results import BuildResults
from hotplate.cache.volumes.taking.lesson import Lesson
from hotplate.cache.volumes.taking.lessons import COMPILED, MODULES, Lessons
from hotplate.cache.volumes.ticket import FOLDER, USER, Ticket, Use
from hotplate.machine.background import retrieve_error, thread_to_its_end
from hotplate.machine.free_space import mib

log = logging.getLogger(__name__)

PUBLISH_S = 100.0
"""How long a call may take: kubelet waits for two minutes, and then asks again."""
SWEEP_S = 60.0
REFUSALS, REFUSED_S = 8, 600.0
"""How many refusals are told, and for how long."""
JOB_FILE = "job.json"


@dataclass(frozen=True)
class PodWork:
    """What is taken over of what pods have made."""

    results: BuildResults
    lessons: Lessons


@dataclass(frozen=True)
class _Making:
    claim: Claim
    task: asyncio.Task[None]


class Volumes:
    """Runs on the event loop. Every method may be repeated."""

    def __init__(
        self, trees: Trees, lending: Lending, data: Path, kubelet: Kubelet, work: PodWork
    ) -> None:
        self.kubelet = kubelet
        self._results = work.results
        self._lessons = work.lessons
        self._trees = trees
        self._lending = lending
        self._records = VolumeRecords(data / "volumes")
        self._all_parts = data / "parts"
        self._parts = kubelet.parts(self._all_parts)
        self._making: dict[str, _Making] = {}
        self._changing = asyncio.Lock()  # mounts are made and removed one after another
        self._refused: OrderedDict[str, float] = OrderedDict()
        trees.shows = self
        trees.blob_table.may_give_up(trees.give_up)

    def needed(self) -> frozenset[str]:
        """Digests of the trees of all volumes, those included that are being made."""
        making = [each.claim.ticket.manifests for each in self._making.values()]
        return self.mounted().union(*making)

    def mounted(self) -> frozenset[str]:
        """Digests of the trees that pods see."""
        shown = [each.claim.ticket.manifests for each in self._records]
        compiled = {each.compiled for each in self._records if each.compiled}
        return frozenset(compiled).union(*shown)

    def refusals(self) -> list[str]:
        """A sentence for each volume that was refused lately."""
        now = asyncio.get_running_loop().time()
        return [sentence for sentence, at in self._refused.items() if now - at < REFUSED_S]

    def refuse(self, pod: str, error: CacheError) -> None:
        """Remembers a refusal."""
        sentence = f"pod {pod}: {error}"
        log.warning("%s", sentence)
        self._refused.pop(sentence, None)
        self._refused[sentence] = asyncio.get_running_loop().time()
        while len(self._refused) > REFUSALS:
            self._refused.popitem(last=False)

    async def start(self) -> None:
        """Removes what has gone, and opens the sockets of the volumes that are there."""
        for record in self._records:
            claim = record.claim
            if not await asyncio.to_thread(mounts.is_mounted, claim.target):
                await self.unpublish(claim.volume, claim.target)  # the node was started anew
        await self.sweep()
        await asyncio.to_thread(self._remove_old_parts)
        for record in self._records:
            if (self._records.folder(record.claim.volume)).is_dir():
                try:
                    await self._open_door(record.claim)
                except CacheError as error:
                    log.warning("volume %s: %s", record.claim.volume, error)

    async def watch(self) -> None:
        """Removes what pods have left that have gone; runs until it is cancelled."""
        while True:
            await asyncio.sleep(SWEEP_S)
            await self.sweep()

    async def sweep(self) -> None:
        for claim in self._claims():
            if not self.kubelet.pod_folder(claim.target).exists():
                try:
                    await self.unpublish(claim.volume, claim.target)
                except (CacheError, OSError) as error:
                    log.warning("volume %s of a pod that has gone: %s", claim.volume, error)

    async def close(self) -> None:
        """Stops making volumes; those that are there stay."""
        for making in list(self._making.values()):
            await _end(making.task)
        await self._results.close()
        await self._lessons.close()

    async def publish(self, claim: Claim) -> None:
        """Returns when the volume is mounted; joins the call that began it, if one did.

        Raises CacheError; VolumeNotReady when it takes longer than kubelet waits.
        """
        making = self._making.get(claim.volume)
        if making is None:
            self._check_same(claim, self._records.get(claim.volume))
            making = self._making[claim.volume] = _Making(
                claim, asyncio.create_task(self._make(claim))
            )
            making.task.add_done_callback(retrieve_error)
            making.task.add_done_callback(lambda _: self._making.pop(claim.volume, None))
        elif making.claim != claim:
            raise _taken(claim)
        await asyncio.wait({making.task}, timeout=PUBLISH_S)
        if not making.task.done():
            raise VolumeNotReady(self._progress(claim.ticket))
        if making.task.cancelled():
            raise BadVolume("the pod has gone meanwhile")
        making.task.result()

    async def unpublish(self, volume: str, target: Path) -> None:
        """Returns when there is neither a mount nor a file of it. Raises OSError."""
        if (making := self._making.get(volume)) is not None:
            await _end(making.task)
        await self._results.stop(volume)
        await self._lessons.stop(volume)
        async with self._changing:
            await thread_to_its_end(asyncio.to_thread(mounts.detach, target))
            folder = self._records.folder(volume)
            await self._lending.close_door(folder / SOCKET_NAME)
            await thread_to_its_end(asyncio.to_thread(self._remove, volume))

    def _claims(self) -> Iterator[Claim]:
        """Of all volumes that are there, or are being made."""
        yield from [record.claim for record in self._records]
        yield from [making.claim for making in self._making.values()]

    def _check_same(self, claim: Claim, record: VolumeRecord | None) -> None:
        if record is not None and record.claim != claim:
            raise _taken(claim)

    async def _make(self, claim: Claim) -> None:
        if not await asyncio.to_thread(self._is_whole, claim):
            lesson = asyncio.create_task(self._lessons.of(claim.ticket))
            try:
                await self._bring(claim.ticket)
                known = await lesson
            finally:
                lesson.cancel()
            async with self._changing:
                await thread_to_its_end(asyncio.to_thread(self._show, claim, known))
        await self._open_door(claim)

    def _is_whole(self, claim: Claim) -> bool:
        known = self._records.get(claim.volume) is not None
        return known and mounts.is_mounted(claim.target)

    async def _bring(self, ticket: Ticket) -> None:
        """Returns when environment and bento are on disk, and of models what is not streamed.

        Raises CacheError.
        """
        whole = {ticket.bento, ticket.environment} - {""}
        try:
            async with asyncio.TaskGroup() as group:
                for digest in ticket.manifests:
                    group.create_task(self._bring_tree(digest, digest in whole))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _bring_tree(self, digest: str, whole: bool) -> None:
        tree = await self._trees.bring(digest)
        await tree.until(tree.whole if whole else tree.ready)

    def _progress(self, ticket: Ticket) -> str:
        trees = [tree for tree in self._trees.trees if tree.digest in ticket.manifests]
        here = sum(tree.bytes_verified for tree in trees)
        size = sum(tree.manifest.size_bytes for tree in trees)
        return (
            f"{mib(here)} of {mib(size)} of the volume's files are on this node; they go on "
            "coming, and it is mounted when environment and bento are whole"
        )

    def _show(self, claim: Claim, lesson: Lesson) -> None:
        """Makes the volume's folder and mounts it. Raises OSError, CacheError."""
        ticket, folder = claim.ticket, self._records.folder(claim.volume)
        try:
            self._records.put(VolumeRecord(claim, self._parts.name, lesson.compiled))
            mounts.detach(claim.target)  # an older one, whose record was lost
            shutil.rmtree(folder, ignore_errors=True)
            shown = self._shown(ticket, lesson)
            for name in {"env", *shown}:
                (folder / name).mkdir(parents=True)
            _write(folder / JOB_FILE, {"absent": []})
            if lesson.modules:
                _write(folder / MODULES, lesson.modules)
            for above, _, _ in os.walk(folder):
                os.chmod(above, 0o755)
            os.chown(folder, USER, USER)
            claim.target.mkdir(mode=0o750, exist_ok=True)
            mounts.attach(folder, shown, claim.target)
        except OSError as exc:
            raise disk_error(folder, 0, exc) from exc

    def _shown(self, ticket: Ticket, lesson: Lesson) -> dict[str, Path]:
        """Folders of this node by those of the volume."""
        root = self._trees.trees_root
        shown = {"bento": root / ticket.bento, "parts": self._parts}
        if ticket.environment:
            shown["env"] = root / ticket.environment
        if lesson.compiled:
            shown[COMPILED] = root / lesson.compiled
        for model in ticket.models:
            shown[f"models/{model.name}/{model.version}"] = root / model.manifest
        return shown

    def _remove(self, volume: str) -> None:
        folder = self._records.folder(volume)
        if folder.exists():
            shutil.rmtree(folder)
        self._records.remove(volume)

    async def _open_door(self, claim: Claim) -> None:
        path = self._records.folder(claim.volume) / SOCKET_NAME
        if self._lending.has_door(path):
            return
        ticket = claim.ticket
        folders = {
            f"{FOLDER}/models/{model.name}/{model.version}": model.manifest
            for model in ticket.models
        }
        folders[f"{FOLDER}/bento"] = ticket.bento
        if ticket.environment:
            folders[f"{FOLDER}/env"] = ticket.environment
        if ticket.use is Use.BUILD:
            door = Door(ticket.manifests, folders, publish=partial(self._results.publish, claim))
        else:
            door = Door(ticket.manifests, folders, keep=partial(self._lessons.keep, claim))
        await self._lending.open_door(path, door)

    def _remove_old_parts(self) -> None:
        """Our modules as earlier versions had them, once no volume shows them."""
        kept = {self._parts.name, *(record.parts for record in self._records)}
        for folder in self._all_parts.iterdir():
            if folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)


def _write(path: Path, content: Any) -> None:
    """A file of a volume. Raises OSError."""
    path.write_text(f"{json.dumps(content)}\n", "utf-8")
    path.chmod(0o444)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


def _taken(claim: Claim) -> BadVolume:
    return BadVolume(
        f"volume {claim.volume} is there already with another ticket or at another place; "
        "it has to be unpublished first"
    )
