"""Takes away copies that nobody needs any longer, and what was an organization's that is gone.

The copies are unpacked files on this node that no deployment uses; they stay at the origin, as in
any registry. What goes from there, and which environments go, is the collector's to say. And tasks
that ended long ago.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence, Set
from typing import Protocol

from hotplate.cache.errors import CacheError
from hotplate.platform.errors import StoreFailed

log = logging.getLogger("hotplate.sweeper")

PERIOD_S = 60.0
"""How often it looks; more often where files may go sooner than that."""


class SweptAgent(Protocol):
    async def idle_s(self) -> Mapping[str, float]: ...

    async def delete(self, manifest: str, idle_s: float) -> bool: ...


class SweptEnvironments(Protocol):
    def manifests(self) -> Set[str]: ...

    async def gone(self, owners: Callable[[], Awaitable[Set[str]]]) -> Sequence[str]: ...

    async def forget(self, folders: Sequence[str]) -> None: ...


class SweptStandbys(Protocol):
    def forget(self, owners: Collection[str]) -> None: ...


class SweptCode(Protocol):
    """What replicas have compiled, or what those have printed that have ended."""

    def forget(self, owners: Set[str]) -> None:
        """Keep what is these owners' alone."""


class SweptTasks(Protocol):
    async def sweep(self) -> None: ...


class Sweeper:
    """`wanted` says which manifests deployments use, or None while that is not known;
    `owners` which organizations there are, with those whose deployments still end."""

    def __init__(
        self,
        wanted: Callable[[], Set[str] | None],
        agent: SweptAgent,
        environments: SweptEnvironments,
        tasks: SweptTasks,
        standbys: SweptStandbys,
        kept: Sequence[SweptCode],
        owners: Callable[[], Awaitable[Set[str]]],
        *,
        unused_files_s: float,
    ) -> None:
        self._wanted = wanted
        self._agent = agent
        self._environments = environments
        self._tasks = tasks
        self._standbys = standbys
        self._kept = kept
        self._owners = owners
        self._unused_files_s = unused_files_s

    async def run(self) -> None:
        """Sweep again and again, until cancelled."""
        unused_s = max(1.0, self._unused_files_s)
        async with asyncio.TaskGroup() as group:
            group.create_task(_repeat(self.sweep, min(PERIOD_S, unused_s)))
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
        await self._forget_organizations()

    async def _forget_organizations(self) -> None:
        """Of one that is gone nothing stays here: no later one of its name has its environments,
        packages and warm processes, or what its replicas have compiled or printed."""
        gone = await self._environments.gone(self._owners)
        if gone:
            self._standbys.forget(gone)
            await self._environments.forget(gone)
        for name in gone:
            log.info("environments and packages of %s are removed: its organization is gone", name)
        owners = await self._owners()
        for each in self._kept:
            each.forget(owners)


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
