"""A runtime whose replicas are `replica_server.py`, and an engine's settings beside it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from hotplate.deploy.local.machine import Gpu, Machine
from hotplate.deploy.local.memory_watch import MemoryWatchSettings
from hotplate.deploy.local.probing import ProbeSettings
from hotplate.deploy.local.runtime import Command, Warm
from hotplate.deploy.local.settings import LocalSettings
from hotplate.deploy.phases import Phase, Recorder
from hotplate.deploy.process.backoff import BackoffSettings
from hotplate.deploy.workload import Workload, WorkloadKey

NEEDED = (sys.prefix, os.path.realpath(sys.base_prefix), str(Path(__file__).parents[3]))
"""What its programs read, where homes are hidden."""
SERVER = Path(__file__).with_name("replica_server.py")
FIELDS = {field.name for field in fields(Workload)}
MACHINE = Machine("here", cpus=4.0, memory_bytes=64 << 30, gpus=(Gpu(0, "GPU-a", "fake", 1),))
QUICK = LocalSettings(
    probe=ProbeSettings(interval_s=0.05, first_pause_s=0.01, max_pause_s=0.05),
    backoff=BackoffSettings(first_s=0.05),
    memory=MemoryWatchSettings(round_s=0.2, share=0.2),
)


class FakeRuntime:
    """Reads its knobs from the workload's `config`, which is the job of the process too."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.hangs = False
        self.builds = ""
        """The log of the build that it hangs in."""
        self.program = sys.executable
        self.prepared: list[str] = []
        self.kept: list[list[str]] = []
        """What was in the directories of those that ended."""
        self.warm: dict[str, str] | None = None
        """Knobs of `standby_server.py`; None = there are no standbys."""
        self.forks = False
        """Whether `template_server.py` forks them, which has the same knobs."""

    async def prepare(
        self, workload: Workload, replica: str, directory: str, recorder: Recorder
    ) -> Command:
        assert os.listdir(directory) == []
        self.prepared.append(replica)
        self.last = workload
        recorder.begin("environment")
        if self.builds:
            recorder.building(self.builds)
        if self.hangs:
            await asyncio.Event().wait()
        if self.failure:
            raise self.failure
        recorder.end("environment")
        argv = (self.program, "-I", "-S", str(SERVER))
        warm = None
        if self.warm is not None:
            start = (sys.executable, "-I", "-S")
            program = (*start, str(SERVER.with_name("standby_server.py")))
            template = (*start, str(SERVER.with_name("template_server.py")))
            warm = Warm(
                workload.bento_manifest,
                program,
                self.warm,
                {},
                organization=workload.key.organization,
                reads=NEEDED,
                template=template if self.forks else (),
            )
        job = dict(workload.config)
        return Command(
            argv,
            dict(workload.env),
            directory,
            job,
            reads=NEEDED,
            warm=warm,
            processes=workload.workers,
        )

    async def keep(self, directory: str, *, ended: bool) -> None:
        if ended:
            with suppress(FileNotFoundError):  # it was stopped before its folder was made
                self.kept.append(sorted(os.listdir(directory)))

    async def self_report(self, directory: str) -> Mapping[str, Any] | None:
        return {"answers": "anything"} if _up_at(directory) else None

    async def phases(self, directory: str) -> Sequence[Phase]:
        return [Phase("init", at) for at in _up_at(directory)]


def _up_at(directory: str) -> list[float]:
    up = Path(directory, "seen.json")
    return [up.stat().st_mtime] if up.exists() else []


def workload(name: str = "a", **given: Any) -> Workload:
    """Keywords that are no field of a workload are knobs of `replica_server.py`."""
    known = {key: given.pop(key) for key in list(given) if key in FIELDS}
    return Workload(
        key=WorkloadKey("acme", name, 1, "Echo"),
        bento_name="echo",
        bento_version="1",
        bento_manifest="",
        config=given,
        **known,
    )
