"""An engine whose replicas a real template forks, within real walls; and what is left of them."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from hotplate.deploy.local.engine import LocalEngine
from hotplate.deploy.local.host import ProcessHost, host_in
from hotplate.deploy.local.machine import Machine
from hotplate.deploy.local.records import Records
from hotplate.deploy.process.detached import Process
from hotplate.deploy.process.procfs import is_first, numbers_of
from hotplate.deploy.sandbox.isolation import Isolation
from hotplate.deploy.sandbox.process_scope import REPLICA_DIR
from hotplate.deploy.standbys import StandbySettings
from tests.support.deploy.fake_runtime import MACHINE, QUICK, FakeRuntime
from tests.support.deploy.running import started
from tests.support.patience import until as eventually

AUTOMATIC = StandbySettings(calm_s=0.0)


def forking(**knobs: str) -> FakeRuntime:
    """Knobs are those of `template_server.py`."""
    runtime = FakeRuntime()
    runtime.warm, runtime.forks = knobs, True
    return runtime


def walled(
    directory: Path, records: Records | None = None, machine: Machine = MACHINE
) -> ProcessHost:
    """Skips where nothing can be forked within walls."""
    host = host_in(directory, machine, records=records, isolation=Isolation([directory]))
    if why := host.isolation.forks_refused:
        pytest.skip(why)
    if not host.cgroups.enforced:
        pytest.skip("no control group may be made here")
    return host


def engine_of(
    host: ProcessHost,
    runtime: FakeRuntime,
    standby: StandbySettings = AUTOMATIC,
    machine: Machine = MACHINE,
) -> LocalEngine:
    settings = replace(QUICK, standby=standby)
    return LocalEngine(host, runtime, machine, settings, random.Random())


@asynccontextmanager
async def templated(
    directory: Path,
    runtime: FakeRuntime,
    standby: StandbySettings = AUTOMATIC,
    machine: Machine = MACHINE,
) -> AsyncIterator[LocalEngine]:
    """An engine of which nothing is left."""
    host = walled(directory, machine=machine)
    async with started(engine_of(host, runtime, standby, machine)) as engine:
        yield engine
    await nothing_left(directory, host)


async def nothing_left(directory: Path, host: ProcessHost) -> None:
    """Of its processes, folders and control groups."""
    await eventually(lambda: not left_of(directory, host))


def left_of(directory: Path, host: ProcessHost) -> Mapping[str, Collection[object]]:
    groups = {each for group in host.cgroups.folders("-") for each in _folders(group.parent)}
    left: dict[str, Collection[object]] = {
        "processes": processes_of(directory),
        "groups": groups,
        "replicas": os.listdir(directory / "replicas"),
        "standbys": os.listdir(directory / "standbys"),
    }
    return {name: each for name, each in left.items() if each}


def processes_of(directory: Path) -> dict[int, str]:
    """Those that were started for an engine there, with their markers."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            entries = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        marks = [os.fsdecode(e) for e in entries if e.startswith(REPLICA_DIR.encode())]
        if marks and str(directory) in marks[0]:
            found[int(name)] = marks[0]
    return found


def template_pid(directory: Path) -> int:
    """Of the only template that runs."""
    found = []
    for mark in Records(directory).standbys():
        for each in Process.find(REPLICA_DIR, [str(mark)]):
            each.leave()
            if len(numbers_of(each.pid)) == 2 and not is_first(each.pid):
                found.append(each.pid)
    (pid,) = found
    return pid


def _folders(group: Path) -> list[str]:
    return [each.name for each in group.iterdir() if each.is_dir()] if group.is_dir() else []
