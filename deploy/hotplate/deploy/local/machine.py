"""What this machine has: CPUs, memory and GPUs, as far as this process may use them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hotplate.deploy.local.placement import Capacity

MEMORY_KEPT = 0.05
"""Share of the memory that is not given to replicas: the system and the platform live there."""

_NO_LIMIT = 1 << 60
"""cgroup v1 writes "no memory limit" as the largest page-aligned 63-bit number."""


@dataclass(frozen=True)
class Gpu:
    """One GPU as NVML lists it (PCI bus order)."""

    index: int
    uuid: str
    name: str
    memory_bytes: int


@dataclass(frozen=True)
class Machine:
    """A node on which replicas are placed."""

    name: str
    cpus: float
    memory_bytes: int
    gpus: tuple[Gpu, ...] = ()
    arena_bytes: int = 0
    """Memory that is promised to model files."""
    cpu_overcommit: float | None = None
    """How many times its CPUs are promised, which replicas then share by what they asked for; None
    = once, and nobody weighs more than another."""

    @property
    def usable_bytes(self) -> int:
        """Memory of replicas and the arena together."""
        return int(self.memory_bytes * (1 - MEMORY_KEPT))

    @property
    def capacity(self) -> Capacity:
        """What may be promised to replicas: all of it is there even when the arena is full."""
        memory_bytes = max(0, self.usable_bytes - self.arena_bytes)
        gpus = tuple(gpu.index for gpu in self.gpus)
        return Capacity(self.cpus, memory_bytes, gpus, self.arena_bytes, self.cpu_overcommit or 1.0)


def detect(*, visible_gpus: str | None = None, root: Path = Path("/")) -> Machine:
    """Look at this machine: CPU affinity, cgroup limits (v1 and v2), MemTotal, NVML.

    `visible_gpus` is our own `CUDA_VISIBLE_DEVICES` (indices or UUIDs): whoever started us with
    some of the GPUs meant only those. `root` is where proc/ and sys/ are found.
    """
    cpus = float(len(os.sched_getaffinity(0)))
    for folder in _cgroups(root):
        cpus = min(cpus, _cpu_limit(folder))
    return Machine(socket.gethostname(), cpus, memory_bytes(root), _gpus(visible_gpus))


def memory_bytes(root: Path = Path("/")) -> int:
    """What this process and its like may use, in all: MemTotal, or less by a cgroup's limit."""
    return min([_total_memory(root), *map(_memory_limit, _cgroups(root))])


def arena_bytes(setting: int, root: Path = Path("/")) -> int:
    """The size of the arena: the setting, or for 0 a quarter of the memory."""
    return setting or memory_bytes(root) // 4


def _total_memory(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo has no MemTotal")


def _cgroups(root: Path) -> Iterator[Path]:
    """Folders of this process's cgroups and of all above them: a limit binds whoever is below."""
    mount = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        hierarchies = [controllers, *controllers.split(",")] if controllers else ["", "unified"]
        for hierarchy in dict.fromkeys(hierarchies):
            top = mount / hierarchy
            inner = top / path.strip("/")
            yield inner
            if inner != top:
                yield from inner.parents[: len(inner.relative_to(top).parts)]


def _cpu_limit(folder: Path) -> float:
    quota, period = "max", "0"
    if text := _read(folder / "cpu.max"):
        quota, period = text.split()
    elif text := _read(folder / "cpu.cfs_quota_us"):
        quota, period = text, _read(folder / "cpu.cfs_period_us")
    return float("inf") if quota in ("max", "-1") else int(quota) / int(period)


def _memory_limit(folder: Path) -> int:
    text = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes")
    return int(text) if text and text != "max" else _NO_LIMIT


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # that controller or version is not mounted here
        return ""


def _gpus(visible: str | None) -> tuple[Gpu, ...]:
    """GPUs by NVML; none where there is no driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        found = [_gpu(index) for index in range(pynvml.nvmlDeviceGetCount())]
    finally:
        pynvml.nvmlShutdown()
    if visible is None:
        return tuple(found)
    allowed = {name.strip() for name in visible.split(",")}
    return tuple(gpu for gpu in found if allowed & {str(gpu.index), gpu.uuid})


def _gpu(index: int) -> Gpu:
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return Gpu(
        index,
        pynvml.nvmlDeviceGetUUID(handle),
        pynvml.nvmlDeviceGetName(handle),
        pynvml.nvmlDeviceGetMemoryInfo(handle).total,
    )
