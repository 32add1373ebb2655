"""Makes the writes that were planned: those of a workload one after the other, several workloads at
a time. What fails is left alone for a while, and so is what was written and is not seen yet."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hotplate.deploy.cluster import names
from hotplate.deploy.cluster.api import ClusterApi
from hotplate.deploy.cluster.kinds import Ref
from hotplate.deploy.cluster.objects import birth
from hotplate.deploy.cluster.plan import (
    DELETION_COST,
    GOES_FIRST,
    Apply,
    Bear,
    Delete,
    Group,
    Prefer,
    Release,
    SetReplicas,
    World,
    Write,
)
from hotplate.deploy.cluster.settings import ClusterSettings
from hotplate.deploy.errors import ClusterRefused, DeployError
from hotplate.deploy.process.backoff import Backoff, BackoffSettings

CONFLICT = 409
PAUSES = BackoffSettings(first_s=0.5, max_s=10.0)


@dataclass
class _Paused:
    backoff: Backoff
    until: float
    """By the loop's clock."""
    error: DeployError


class Writer:
    """Lives on one event loop."""

    def __init__(self, api: ClusterApi, settings: ClusterSettings) -> None:
        self._api, self._settings = api, settings
        self._paused: dict[Ref, _Paused] = {}
        self._written: dict[Ref, tuple[str, float]] = {}
        """The version of each object that was written at, and until when that is believed."""
        self._slots = asyncio.Semaphore(settings.writes_at_once)

    def pause_s(self, longest_s: float) -> float:
        """How long until something that failed is to be tried again, at most `longest_s`."""
        now = asyncio.get_running_loop().time()
        dues = [each.until - now for each in self._paused.values()]
        return max(0.0, min([longest_s, *dues]))

    async def write(self, writes: Sequence[Write], world: World) -> Mapping[Group, DeployError]:
        """What stands in the way, by group; nothing where all is written or on its way."""
        now = asyncio.get_running_loop().time()
        planned = {write.ref for write in writes}
        self._paused = {ref: each for ref, each in self._paused.items() if ref in planned}
        self._written = {
            ref: (version, until)
            for ref, (version, until) in self._written.items()
            if until > now and _version(world, ref) == version
        }
        groups: dict[Group, list[Write]] = defaultdict(list)
        for write in writes:
            if write.ref not in self._written:
                groups[write.group].append(write)
        failed = await asyncio.gather(*(self._group(each, world) for each in groups.values()))
        return {
            group: error for group, error in zip(groups, failed, strict=True) if error is not None
        }

    async def _group(self, writes: Sequence[Write], world: World) -> DeployError | None:
        loop = asyncio.get_running_loop()
        async with self._slots:
            for write in writes:
                paused = self._paused.get(write.ref)
                if paused is not None and paused.until > loop.time():
                    return paused.error
                try:
                    await self._make(write)
                except DeployError as error:
                    if isinstance(error, ClusterRefused) and error.status == CONFLICT:
                        return None  # it has changed meanwhile: the watch wakes us
                    backoff, pause_s = (paused.backoff if paused else Backoff(PAUSES)).failed(0.0)
                    self._paused[write.ref] = _Paused(backoff, loop.time() + pause_s, error)
                    return error
                self._paused.pop(write.ref, None)
                believed = loop.time() + self._settings.seen_after_s
                self._written[write.ref] = (_version(world, write.ref), believed)
        return None

    async def _make(self, write: Write) -> None:
        match write:
            case Bear():
                born = birth(write.manifest)
                await self._api.apply(born, names.SCALER)
                await self._api.apply(write.manifest)
                await self._api.apply(_replicas_only(born), names.SCALER)
            case Apply():
                await self._api.apply(write.manifest)
            case SetReplicas():
                await self._api.scale(write.ref, write.count, write.version)
            case Prefer():
                await self._api.annotate(write.ref, {DELETION_COST: GOES_FIRST})
            case Delete():
                await self._api.delete(write.ref, write.uid)
            case Release():
                await self._api.release(write.anchor)


def _replicas_only(born: Mapping[str, object]) -> dict[str, object]:
    """What stays the scaler's: it gives up the rest, which the deployer has applied meanwhile."""
    meta, spec = born["metadata"], born["spec"]
    assert isinstance(meta, dict) and isinstance(spec, dict)
    return {
        "apiVersion": born["apiVersion"],
        "kind": born["kind"],
        "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
        "spec": {"replicas": spec["replicas"]},
    }


def _version(world: World, ref: Ref) -> str:
    seen = world.objects.get(ref)
    return "" if seen is None else str(seen["metadata"]["resourceVersion"])
