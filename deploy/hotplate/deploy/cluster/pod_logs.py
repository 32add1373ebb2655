"""Logs of pods: of one that is there from the cluster, of one that has gone what was kept of it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress

from hotplate.deploy.cluster.api import ClusterApi
from hotplate.deploy.cluster.kinds import POD, Ref, ref_of
from hotplate.deploy.cluster.objects import Manifest
from hotplate.deploy.cluster.pods import is_ending, is_over, printed_before
from hotplate.deploy.cluster.settings import ClusterSettings
from hotplate.deploy.errors import ClusterRefused, DeployError, UnknownReplica
from hotplate.deploy.process.printable import printable
from hotplate.machine.background import BackgroundTasks

OLD_S = 2.0


class PodLogs:
    """The last lines of each pod, kept from when it begins to end: a cluster drops them with it."""

    def __init__(self, api: ClusterApi, settings: ClusterSettings, old_s: float = OLD_S) -> None:
        """What comes within `old_s` of asking is taken for what was there: a cluster does not say
        where that ends."""
        self._api, self._settings, self._old_s = api, settings, old_s
        self._kept: OrderedDict[str, list[str]] = OrderedDict()
        self._tasks = BackgroundTasks()

    def follow(self, pods: Iterable[Manifest]) -> None:
        """Begin to keep what those print that are ending."""
        for pod in pods:
            name = pod["metadata"]["name"]
            if (is_ending(pod) or is_over(pod)) and name not in self._kept:
                self._kept[name] = []
                while len(self._kept) > self._settings.logs_kept:
                    self._kept.popitem(last=False)
                self._tasks.start(self._keep(ref_of(pod, POD.name), self._kept[name]))

    async def tail(self, replica: str, pod: Manifest | None, lines: int) -> list[str]:
        """The last lines; `pod` is None where it has gone. Raises `UnknownReplica` and what the
        cluster does."""
        if pod is not None:
            found = await self._api.logs(ref_of(pod, POD.name), lines)
            return [*await self._before(pod, lines - len(found)), *found]
        if replica not in self._kept:
            raise UnknownReplica(f"There is no replica {replica!r} now, nor was there lately.")
        return self._kept[replica][-lines:]

    async def followed(
        self, replica: str, pod: Manifest | None, lines: int | None
    ) -> AsyncGenerator[str, None]:
        """The same, an empty piece and what comes, line by line, until its container ends; None =
        all, without such a piece."""
        if pod is None:
            for line in await self.tail(replica, None, lines or self._settings.log_lines):
                yield f"{line}\n"
            return
        now = asyncio.get_running_loop().time
        asked_at, is_old = now(), lines is not None
        async with aclosing(self._api.follow(ref_of(pod, POD.name), lines)) as come:
            async for line in come:
                if is_old and now() - asked_at >= self._old_s:
                    is_old = False
                    yield ""
                yield f"{printable(line)}\n"

    async def _before(self, pod: Manifest, lines: int) -> list[str]:
        """The last lines of its container that ended before the one that is there."""
        if lines <= 0 or not printed_before(pod):
            return []
        with suppress(ClusterRefused):  # the node has removed it
            return await self._api.logs(ref_of(pod, POD.name), lines, previous=True)
        return []

    async def close(self) -> None:
        await self._tasks.cancel()

    async def _keep(self, pod: Ref, kept: list[str]) -> None:
        try:
            async for line in self._api.follow(pod, self._settings.log_lines):
                kept.append(line)
                del kept[: -self._settings.log_lines]
        except DeployError:
            return  # it went before we could ask, or has printed nothing that can be read
