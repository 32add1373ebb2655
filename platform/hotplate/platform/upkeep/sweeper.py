"""Takes away what nobody needs any longer.

From this node what no deployment uses: unpacked files and environments. From the origin what no
version names: the files of one that was pushed again. What a version names stays there, as in any
registry; here it is only a copy. And tasks that ended long ago.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from typing import Protocol

from hotplate.cache.errors import CacheError
from hotplate.cache.store.blobs import Digests
from hotplate.platform.errors import StoreFailed

log = logging.getLogger("hotplate.sweeper")

PERIOD_S = 60.0
"""How often it looks; more often where files may go sooner than that."""


class SweptAgent(Protocol):
    async def idle_s(self) -> Mapping[str, float]: ...

    async def delete(self, manifest: str, idle_s: float) -> bool: ...


class SweptEnvironments(Protocol):
    def manifests(self) -> Set[str]: ...

    async def sweep(self, wanted: Set[str], spare: int) -> Mapping[str, str]: ...

    async def forget(self, organizations: Set[str]) -> Sequence[str]: ...


class SweptOrigin(Protocol):
    async def sweep(self, wanted: Set[str]) -> Digests: ...


class SweptTasks(Protocol):
    async def sweep(self) -> None: ...


class Sweeper:
    """`wanted` says which manifests deployments use, or None while that is not known;
    `organizations` which there are, with those whose deployments still end."""

    def __init__(
        self,
        wanted: Callable[[], Set[str] | None],
        agent: SweptAgent,
        environments: SweptEnvironments,
        origin: SweptOrigin,
        tasks: SweptTasks,
        organizations: Callable[[], Awaitable[Set[str]]],
        *,
        unused_files_s: float,
        spare_environments: int,
    ) -> None:
        self._wanted = wanted
        self._agent = agent
        self._environments = environments
        self._origin = origin
        self._tasks = tasks
        self._organizations = organizations
        self._unused_files_s = unused_files_s
        self._spare_environments = spare_environments

    async def run(self) -> None:
        """Sweep again and again, until cancelled."""
        unused_s = max(1.0, self._unused_files_s)
        async with asyncio.TaskGroup() as group:
            group.create_task(_repeat(self.sweep, min(PERIOD_S, unused_s)))
            group.create_task(_repeat(self.sweep_origin, unused_s))
            group.create_task(_repeat(self._tasks.sweep, PERIOD_S))

    async def sweep(self) -> None:
        """This node, once. Raises CacheError where the agent cannot be asked, OSError of a disk."""
        idle_s = await self._agent.idle_s()
        wanted = self._wanted()
        kept = None if wanted is None else wanted | self._environments.manifests()
        for manifest, reason in unused(idle_s, kept, self._unused_files_s).items():
            # The agent hears of a request for it in this moment first.
            if await self._agent.delete(manifest, idle_s=self._unused_files_s):
                log.info("files %s are removed from this node: %s", manifest, reason)
        if (wanted := self._wanted()) is not None:
            gone = await self._environments.sweep(wanted, self._spare_environments)
            for digest, reason in gone.items():
                log.info("environment %s is removed: %s", digest, reason)
        for name in await self._environments.forget(await self._organizations()):
            log.info("environments and packages of %s are removed: its organization is gone", name)

    async def sweep_origin(self) -> None:
        """The origin, once; what has been of no use since the last time goes.

        Raises CacheError of the blob store, StoreFailed of the database.
        """
        if (wanted := self._wanted()) is not None and (gone := await self._origin.sweep(wanted)):
            log.info(
                "%d manifests and %d blobs that no version names are removed from the origin",
                len(gone.manifests),
                len(gone.blobs),
            )


async def _repeat(sweep: Callable[[], Awaitable[None]], period_s: float) -> None:
    while True:
        await asyncio.sleep(period_s)
        try:
            await sweep()
        except (CacheError, StoreFailed, OSError) as error:
            log.warning("unused files stay until the next attempt: %s", error)


def unused(idle_s: Mapping[str, float], wanted: Set[str] | None, after_s: float) -> dict[str, str]:
    """The manifests whose files may go, with the reason.

    `idle_s` says for how long nobody has asked for each one; `wanted` None = not known: all stay.
    """
    if wanted is None:
        return {}
    return {
        manifest: f"no deployment uses them, and nobody asked for them for {idle:.0f} s"
        for manifest, idle in idle_s.items()
        if manifest not in wanted and idle >= after_s
    }
