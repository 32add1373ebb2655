"""What an earlier engine has left and nobody is responsible for: found by marks and groups."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from hotplate.deploy.local.records import Records
from hotplate.deploy.process.detached import Process
from hotplate.deploy.process.procfs import is_first
from hotplate.deploy.sandbox.cgroups import end_groups
from hotplate.deploy.sandbox.process_scope import REPLICA_DIR
from hotplate.machine import foreign_folder

_GRACE_S = 30.0
"""From SIGTERM to SIGKILL for a process of a replica that we know nothing of."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OrphanedProcesses:
    """Replicas without a (readable) record, standbys, and control groups of nobody's."""

    replicas: Collection[str]
    standbys: Collection[Path]
    """Their markers."""
    groups: Collection[Path]
    kept: Collection[Path] = ()
    """Markers that processes of others carry, too: those that one template has forked."""

    def __bool__(self) -> bool:
        return bool(self.replicas or self.standbys or self.groups)


async def clear_away(strays: OrphanedProcesses, records: Records) -> None:
    """End what still runs of them, and remove their folders."""
    marks = [*strays.standbys, *(mark for one in strays.replicas for mark in records.marks(one))]
    marks = [mark for mark in marks if mark not in strays.kept]
    if processes := Process.find(REPLICA_DIR, list(map(str, marks))):
        log.warning("%d processes that belong to no replica are ended", len(processes))
        firsts = [process for process in processes if is_first(process.pid)]
        others = [process for process in processes if process not in firsts]
        await asyncio.gather(*(process.terminate(_GRACE_S) for process in others))
        await asyncio.gather(*(process.terminate(0) for process in firsts))
    try:
        await end_groups(strays.groups)
    except OSError:
        log.exception("a control group that nobody needs could not be removed")
    for replica in strays.replicas:
        await foreign_folder.aside_for_long(records.end, replica)
    await foreign_folder.aside_for_long(records.clear_leavings)
    for mark in strays.standbys:
        await foreign_folder.aside_for_long(records.end_standby, mark.parent.name)
