"""The local engine with its parts: the one place that knows that replicas are processes here.

A control plane asks for `assemble(settings)`, makes its runtime with `builds` and `isolation`, and
then gets the engine. It knows all of them by the protocols in `hotplate.deploy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hotplate.deploy.engine import Supply
from hotplate.deploy.local.engine import LocalEngine
from hotplate.deploy.local.host import host_in
from hotplate.deploy.local.machine import Machine, arena_bytes, detect
from hotplate.deploy.local.runtime import Runtime
from hotplate.deploy.local.settings import LocalSettings
from hotplate.deploy.sandbox.builds import Builds
from hotplate.deploy.sandbox.cgroups import Cgroups
from hotplate.deploy.sandbox.isolation import Isolation
from hotplate.deploy.standbys import StandbySettings
from hotplate.deploy.workload import Resources


@dataclass(frozen=True, kw_only=True)
class AssemblySettings:
    """What an operator says of this machine, and where its files lie."""

    engine_folder: Path
    """The engine's state."""
    environments_folder: Path
    """Where builds run."""
    hidden: Sequence[Path]
    """Folders, by their real paths, of which a replica sees what it needs only."""
    reads: Sequence[str] = ()
    writes: Sequence[str] = ()
    """Shown to every replica, if they are there."""
    visible_gpus: str | None = None
    """Indices or UUIDs of GPUs, with commas between; None = all."""
    arena_bytes: int = 0
    """Memory for model files; 0 = a quarter."""
    cpu_overcommit: float | None = None
    """How many times CPUs are promised; None = once."""
    build_memory_bytes: int = 0
    """The most that builds use together; 0 = half of the memory."""
    standby: StandbySettings = field(default_factory=StandbySettings)


class LocalAssembly:
    """Made by `assemble`; `close` it when the engine has been closed."""

    def __init__(self, settings: AssemblySettings) -> None:
        self.machine = _machine(settings)
        self.isolation = Isolation(settings.hidden, reads=settings.reads, writes=settings.writes)
        memory_bytes = settings.build_memory_bytes or self.machine.memory_bytes // 2
        cgroups = Cgroups(settings.environments_folder, memory_bytes)
        self.builds = Builds(self.isolation, cgroups, memory_bytes)
        self._settings = settings

    @property
    def supply(self) -> Supply:
        capacity = self.machine.capacity
        return Supply(
            most=Resources(capacity.cpus, capacity.memory_bytes, len(capacity.gpus)),
            cpus_shared=self.machine.cpu_overcommit is not None,
            memory_note=capacity.arena_note,
            gpu_names=tuple(gpu.name for gpu in self.machine.gpus),
        )

    def engine(self, runtime: Runtime) -> LocalEngine:
        """The engine, not started."""
        host = host_in(self._settings.engine_folder, self.machine, isolation=self.isolation)
        settings = LocalSettings(standby=self._settings.standby)
        return LocalEngine(host, runtime, self.machine, settings)

    def close(self) -> None:
        self.builds.close()


async def assemble(settings: AssemblySettings) -> LocalAssembly:
    """Find out what this machine has and allows, and end what builds have left. Raises OSError."""
    parts = LocalAssembly(settings)
    await parts.builds.end_leftovers()
    return parts


def _machine(settings: AssemblySettings) -> Machine:
    return replace(
        detect(visible_gpus=settings.visible_gpus),
        arena_bytes=arena_bytes(settings.arena_bytes),
        cpu_overcommit=settings.cpu_overcommit,
    )
