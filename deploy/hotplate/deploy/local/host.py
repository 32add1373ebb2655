"""Where the processes of one engine live: their files, their control groups, their isolation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hotplate.deploy.local.machine import Machine
from hotplate.deploy.local.records import Records
from hotplate.deploy.sandbox.cgroups import Cgroups
from hotplate.deploy.sandbox.isolation import Isolation


@dataclass(frozen=True, kw_only=True)
class ProcessHost:
    """The same for replicas and standbys: a standby becomes a replica where it is."""

    records: Records
    cgroups: Cgroups
    isolation: Isolation


def host_in(
    directory: Path,
    machine: Machine,
    *,
    records: Records | None = None,
    cgroups: Cgroups | None = None,
    isolation: Isolation | None = None,
) -> ProcessHost:
    """With its state in a directory, over restarts too; isolated by nothing unless it is said."""
    shared_cpus = machine.cpus if machine.cpu_overcommit else 0.0
    return ProcessHost(
        records=records or Records(directory),
        cgroups=cgroups or Cgroups(directory, machine.usable_bytes, shared_cpus=shared_cpus),
        isolation=isolation or Isolation(),
    )
