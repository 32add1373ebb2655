"""Finds and ends processes that a killed control plane has left, and that nobody waits for."""

from __future__ import annotations

import asyncio
import logging

from hotplate.deploy.local.records import Records
from hotplate.deploy.process.detached import Process
from hotplate.deploy.sandbox.process_scope import REPLICA_DIR
from hotplate.platform.processes.data_dir import DataDir
from hotplate.serving.replica.environments.folder import attempts

log = logging.getLogger("hotplate.leftovers")


async def end_builds(data: DataDir) -> None:
    """End the building of environments: it is begun anew when one is needed."""
    marks = await asyncio.to_thread(attempts, data.folder("environments"))
    builds = Process.find(REPLICA_DIR, list(map(str, marks)))
    if builds:
        log.warning("%d processes of interrupted builds are ended", len(builds))
    await asyncio.gather(*(build.terminate(0) for build in builds))


async def end_replicas(data: DataDir, grace_s: float) -> None:
    """End the replicas and standbys: SIGTERM, and after `grace_s` SIGKILL."""
    records = Records(data.visible_folder("engine"))
    marks = [mark for replica in records.ids() for mark in records.marks(replica)]
    orphans = Process.find(REPLICA_DIR, list(map(str, (*marks, *records.standbys()))))
    await asyncio.gather(*(orphan.terminate(grace_s) for orphan in orphans))
