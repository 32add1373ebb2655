"""A runtime whose replicas are `replica_server.py`, and what the engine's tests share."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from hotplate.deploy.engine import Engine, Replica, ReplicaState
from hotplate.deploy.local.machine import Gpu, Machine
from hotplate.deploy.local.probing import ProbeSettings
from hotplate.deploy.local.settings import LocalSettings
from hotplate.deploy.phases import Phase
from hotplate.deploy.process.backoff import BackoffSettings
from hotplate.deploy.runtime import Command, Recorder, Warm
from hotplate.deploy.workload import Workload, WorkloadKey
from tests.support.patience import PATIENCE_S

NEEDED = (sys.prefix, os.path.realpath(sys.base_prefix), str(Path(__file__).parents[3]))
"""What its programs read, where homes are hidden."""
SERVER = Path(__file__).with_name("replica_server.py")
FIELDS = {field.name for field in fields(Workload)}
MACHINE = Machine("here", cpus=4.0, memory_bytes=64 << 30, gpus=(Gpu(0, "GPU-a", "fake", 1),))
QUICK = LocalSettings(
    probe=ProbeSettings(interval_s=0.05, first_pause_s=0.01, max_pause_s=0.05),
    backoff=BackoffSettings(first_s=0.05),
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

    async def prepare(
        self, workload: Workload, replica: str, directory: str, recorder: Recorder
    ) -> Command:
        assert os.listdir(directory) == []
        self.prepared.append(replica)
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
            program = (sys.executable, "-I", "-S", str(SERVER.with_name("standby_server.py")))
            warm = Warm(
                workload.bento_manifest,
                program,
                self.warm,
                {},
                organization=workload.key.organization,
                reads=NEEDED,
            )
        job = dict(workload.config)
        return Command(argv, dict(workload.env), directory, job, reads=NEEDED, warm=warm)

    async def keep(self, directory: str, *, ended: bool) -> None:
        if ended:
            self.kept.append(sorted(os.listdir(directory)))

    async def told(self, directory: str) -> Mapping[str, Any] | None:
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


async def until(
    engine: Engine, condition: Callable[[Sequence[Replica]], bool], timeout_s: float = PATIENCE_S
) -> Sequence[Replica]:
    """The replicas, as soon as `condition` holds for them."""
    try:
        async with asyncio.timeout(timeout_s):
            while not condition(engine.replicas()):
                await engine.changed()
    except TimeoutError:
        raise AssertionError(f"still {engine.replicas()}") from None
    return engine.replicas()


def states(*wanted: ReplicaState) -> Callable[[Sequence[Replica]], bool]:
    """Whether the replicas have exactly these states, in any order."""
    return lambda replicas: sorted(each.state for each in replicas) == sorted(wanted)


def pid_of(directory: Path, replica: str) -> int:
    pid = json.loads((directory / "replicas" / replica / "state.json").read_text())["pid"]
    assert isinstance(pid, int)
    return pid


def outside(inside: Collection[int], beside: int) -> list[int]:
    """What these process ids, of the namespace of the process `beside`, are here."""
    namespace = os.stat(f"/proc/{beside}/ns/pid")
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if os.path.samestat(os.stat(status.with_name("ns") / "pid"), namespace):
                numbers = status.read_text().partition("NSpid:")[2].splitlines()[0].split()
                found += [int(numbers[0])] if int(numbers[-1]) in inside else []
        except OSError:
            continue
    return found


def runs(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def zombies() -> list[int]:
    """Children of this process that nobody has reaped."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = stat.read_text().partition(" ")
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, parent = rest.rpartition(")")[2].split()[:2]
        if state == "Z" and int(parent) == os.getpid():
            found.append(int(pid))
    return found
