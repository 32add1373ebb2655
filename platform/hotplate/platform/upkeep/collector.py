"""Removes what nobody wants: from the blob store, and Python environments from this node.

`garbage` says what goes. Here it is found and removed, in turns of a few seconds: nothing is put
into the store during one (`cache/store/holds.py`), and what is wanted is asked for anew in each.
First go notes, then blobs, and manifests last: a run that is killed leaves what names the rest, and
the next one goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Set
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from hotplate.cache.errors import CacheError, UnknownManifest
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.store.contents import Listing
from hotplate.cache.store.holds import TURN_S
from hotplate.platform.api.hotplate.garbage import Collected
from hotplate.platform.errors import Busy
from hotplate.platform.store.parts import Store
from hotplate.platform.upkeep.claim import ownership
from hotplate.platform.upkeep.garbage import Garbage, Rules, Wanted, garbage, staying

log = logging.getLogger("hotplate.sweeper")

TRIES = 50
KINDS = ("manifests", "blobs", "notes", "uploads", "incoming")
PAUSE_S = 0.2
"""How often a turn is tried for while uploads are under way, and how long until the next try."""


class CollectedEnvironments(Protocol):
    """This node's."""

    async def sweep(
        self,
        wanted: Callable[[], Set[str] | None],
        spare: int,
        used_before: float,
        *,
        dry_run: bool = False,
    ) -> Mapping[str, int]: ...

    def manifests(self) -> Set[str]: ...

    def notes(self) -> Set[str]: ...


class CollectedCode(Protocol):
    def manifests(self) -> Set[str]: ...

    def notes(self) -> Set[str]: ...


class Collector:
    """`running` says which manifests running things use, or None while that is not known."""

    def __init__(
        self,
        store: Store,
        blobs: BlobStore,
        installation: str,
        running: Callable[[], Set[str] | None],
        environments: CollectedEnvironments,
        compiled: CollectedCode,
        *,
        grace_s: float,
        spare_environments: int,
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._installation = installation
        self._running = running
        self._environments = environments
        self._compiled = compiled
        self._grace_s = grace_s
        self._spare = spare_environments
        self._contents: dict[str, frozenset[str]] = {}
        """The blobs of manifests, which never change."""
        self._turn = asyncio.Lock()

    async def collect(self, *, dry_run: bool = False) -> Collected:
        """Once. Raises Busy where it cannot be now, CacheError, StoreFailed and OSError."""
        async with self._turn:
            before = datetime.now(UTC).timestamp() - self._grace_s
            bentos = await self._store.run(self._store.artifacts.named_files)
            gone = await self._environments.sweep(
                lambda: _joined(self._running(), bentos), self._spare, before, dry_run=dry_run
            )
            for digest in gone if not dry_run else ():
                log.info("environment %s is removed: no deployment uses it", digest)
            found = Collected(environments=len(gone), bytes=sum(gone.values()))
            return found.plus(await self._collect_files(dry_run=dry_run))

    async def _collect_files(self, *, dry_run: bool) -> Collected:
        there = await asyncio.to_thread(self._blobs.contents.listing)
        if dry_run:
            at = datetime.now(UTC).timestamp()
            plan = await self._plan(there, at)
            return _counted(there, plan)
        collected = Collected()
        # Until then a blob that was pushed again takes the room of both: whoever pushed it must not
        # see by the room that somebody else had it.
        before = datetime.now(UTC) - timedelta(seconds=self._grace_s)
        await asyncio.to_thread(self._blobs.drop_replaced, before)
        while True:
            there, plan, removed = await self._remove_some(there)
            collected = collected.plus(_counted(there, removed))
            if not removed:
                break
            there = _without(there, removed)
            if removed == plan:
                break
        if collected != Collected():
            log.info(
                "%d manifests and %d blobs (%d bytes) that nobody wants are removed",
                collected.manifests,
                collected.blobs,
                collected.bytes,
            )
        return collected

    async def _remove_some(self, there: Listing) -> tuple[Listing, Garbage, Garbage]:
        """One turn: what there was, what of it goes, and what of that was removed."""
        clock = asyncio.get_running_loop().time
        for _ in range(TRIES):
            removal = self._blobs.removal()
            entering = asyncio.create_task(asyncio.to_thread(removal.__enter__))
            try:
                if await asyncio.shield(entering):
                    # What was put here after the listing may consist of blobs that lay here before
                    # it: the database names it, or a note.
                    notes = await asyncio.to_thread(self._blobs.contents.notes, there.notes)
                    there = replace(there, notes=notes)
                    plan = await self._plan(there, removal.at)
                    work = asyncio.create_task(asyncio.to_thread(self._remove, plan, clock))
                    try:
                        return there, plan, await asyncio.shield(work)
                    finally:  # also when cancelled: nothing may come before the thread has ended
                        await asyncio.wait({work})
            finally:
                await asyncio.wait({entering})
                await asyncio.to_thread(removal.__exit__)
            await asyncio.sleep(PAUSE_S)
        raise Busy(
            "files are being pushed, or a backup copies them, and nothing is removed meanwhile: "
            "try it again when that is over"
        )

    async def _plan(self, there: Listing, at: float) -> Garbage:
        """What goes; `at` is now, by the storage's clock. Raises Busy where that is not known."""
        uploads = await self._store.run(self._store.uploads.ids)
        named = await self._store.run(self._store.artifacts.named_files)
        claimed = await asyncio.to_thread(self._blobs.contents.claim) or {}
        if claimed.get("installation") != self._installation:
            raise Busy(
                f"the files at {self._blobs.url} are another installation's (hotplate.json): "
                "nothing of them is removed"
            )
        # From here on nothing is awaited until it is decided: what runs may change in between.
        rules = Rules(at - self._grace_s, ownership(claimed))
        running = self._running()
        if running is None:
            raise Busy("not all deployments are read yet, so nothing is removed: try it again soon")
        kept = named | running | self._environments.manifests() | self._compiled.manifests()
        notes = self._environments.notes() | self._compiled.notes()
        wanted = Wanted(frozenset(kept), frozenset(notes), frozenset(uploads))
        blobs_of = await asyncio.to_thread(self._blobs_of, there, wanted, rules)
        return garbage(there, wanted, rules, blobs_of)

    def _blobs_of(self, there: Listing, wanted: Wanted, rules: Rules) -> dict[str, frozenset[str]]:
        stay = staying(there, wanted, rules).manifests
        going = there.manifests.keys() - stay if rules.claim.own else ()
        self._contents = {k: v for k, v in self._contents.items() if k in there.manifests}
        for digest in (*stay, *going):
            if digest not in self._contents:
                try:
                    found = self._blobs.get_manifest(digest)
                except UnknownManifest:
                    continue  # it names nothing
                except CacheError:
                    if digest in wanted.manifests:
                        raise
                    continue  # nobody can use it, and it has no blobs that are known
                self._contents[digest] = frozenset(blob.digest for blob in found.blobs())
        return self._contents

    def _remove(self, plan: Garbage, clock: Callable[[], float]) -> Garbage:
        """As much of it as one turn has time for."""
        ends_at = clock() + TURN_S
        removed: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
        for kind, name, remove in self._steps(plan):
            if clock() > ends_at:
                break
            remove(name)
            removed[kind][name] = getattr(plan, kind)[name]
        return Garbage(**removed)

    def _steps(self, plan: Garbage) -> Iterator[tuple[str, str, Callable[[str], None]]]:
        stored = self._blobs.contents
        for kind, remove in (
            ("notes", stored.remove_note),
            ("blobs", stored.remove_blob),
            ("manifests", stored.remove_manifest),
            ("uploads", stored.remove_upload),
            ("incoming", stored.remove_incoming),
        ):
            for name in sorted(getattr(plan, kind)):
                yield kind, name, remove


def _joined(running: Set[str] | None, named: Set[str]) -> Set[str] | None:
    return None if running is None else running | named


def _counted(there: Listing, plan: Garbage) -> Collected:
    sizes = (
        *(there.manifests[name].size_bytes for name in plan.manifests),
        *(there.blobs[name].size_bytes for name in plan.blobs),
        *(there.notes[name].stored.size_bytes for name in plan.notes),
        *(there.uploads[name].size_bytes for name in plan.uploads),
        *(there.incoming[name].size_bytes for name in plan.incoming),
    )
    return Collected(len(plan.manifests), len(plan.blobs), 0, sum(sizes))


def _without(there: Listing, gone: Garbage) -> Listing:
    return Listing(
        **{
            kind: {n: v for n, v in getattr(there, kind).items() if n not in getattr(gone, kind)}
            for kind in KINDS
        }
    )


async def collect_for_ever(collector: Collector, period_s: float) -> None:
    """Again and again, until cancelled."""
    while True:
        await asyncio.sleep(period_s)
        await attempt(collector.collect)


async def attempt(collect: Callable[[], Awaitable[object]]) -> None:
    """A run that fails is told of, and the next one goes on."""
    try:
        await collect()
    except (Busy, CacheError, OSError) as error:
        log.warning("what nobody wants stays until the next attempt: %s", error)
