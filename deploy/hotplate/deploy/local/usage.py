"""What the replicas of this machine have used: their control groups', and their GPUs' figures."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hotplate.deploy.engine import ReplicaUsage
from hotplate.deploy.local.gpu_usage import read_gpus
from hotplate.deploy.local.records import Records
from hotplate.deploy.local.replica import LocalReplica
from hotplate.deploy.process.group_usage import usage_of


class RunningReplica(NamedTuple):
    """One that has a process."""

    id: str
    folders: Sequence[Path]
    """Its control group's; none where there are no control groups."""
    own_bytes: int
    """What is its own of the memory, as read lately; 0 = it was not."""
    gpus: Sequence[int] = ()
    gpu_part: float = 1.0
    """How much of each of them is its."""


class UsageReader:
    """Reads it of all replicas of an engine, which has them by id."""

    def __init__(self, replicas: Mapping[str, LocalReplica], records: Records) -> None:
        self._replicas = replicas
        self._records = records

    async def read(self) -> Mapping[str, ReplicaUsage]:
        """What each has used, by id, as far as it is known."""
        running = list(self._replicas.values())
        return await asyncio.to_thread(self._read, running) if running else {}

    def _read(self, replicas: Sequence[LocalReplica]) -> Mapping[str, ReplicaUsage]:
        return read_usage([r for each in replicas if (r := self._running(each)) is not None])

    def _running(self, replica: LocalReplica) -> RunningReplica | None:
        place = replica.place
        if place is None or not replica.has_process:
            return None
        return RunningReplica(
            id=replica.id,
            folders=self._records.groups(replica.id),
            own_bytes=replica.attempt.own_bytes,
            gpus=place.gpus,
            gpu_part=min(1.0, replica.workload.resources.gpus / max(1, len(place.gpus))),
        )


def read_usage(running: Sequence[RunningReplica]) -> Mapping[str, ReplicaUsage]:
    """By id. Blocks, for some 0.1 ms each. Of the memory of a GPU that it shares it has as much as
    of the GPU."""
    gpus = read_gpus(sorted({gpu for each in running for gpu in each.gpus}))
    found = {}
    for each in running:
        group = usage_of(each.folders)
        mine = [gpus[gpu] for gpu in each.gpus if gpu in gpus]
        used_bytes = sum(gpu.memory_bytes for gpu in mine)
        found[each.id] = ReplicaUsage(
            cpu_s=group.cpu_s,
            memory_bytes=group.memory_bytes or each.own_bytes or None,
            gpu_share=sum(gpu.share for gpu in mine) / len(mine) if mine else None,
            gpu_memory_bytes=int(used_bytes * each.gpu_part) if mine else None,
        )
    return found
