"""What a machine says that it has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hotplate.deploy.local.machine import Gpu, Machine, arena_bytes, detect

GIB = 1 << 30


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": f"MemTotal: {64 * GIB // 1024} kB\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    "files",
    [
        {
            "proc/self/cgroup": "0::/pod/box\n",
            "sys/fs/cgroup/pod/cpu.max": "50000 100000\n",
            "sys/fs/cgroup/pod/box/cpu.max": "max 100000\n",
            "sys/fs/cgroup/pod/box/memory.max": f"{8 * GIB}\n",
            "sys/fs/cgroup/pod/memory.max": "max\n",
        },
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/cpu.max": "50000 100000\n",
            "sys/fs/cgroup/memory.max": f"{8 * GIB}\n",
        },
        {
            "proc/self/cgroup": "4:memory:/box\n1:cpu,cpuacct:/box\n0::/\n",
            "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": f"{8 * GIB}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    ],
    ids=["v2-nested", "v2-container", "v1"],
)
def test_limits_of_a_cgroup_bind(tmp_path: Path, files: dict[str, str]) -> None:
    machine = detect(root=tree(tmp_path, files))
    assert (machine.cpus, machine.memory_bytes) == (0.5, 8 * GIB)


def test_without_limits_it_is_the_whole_machine(tmp_path: Path) -> None:
    machine = detect(root=tree(tmp_path, {}))
    assert machine.cpus == len(os.sched_getaffinity(0))
    assert machine.memory_bytes == 64 * GIB


def test_this_machine_can_be_read() -> None:
    machine = detect()
    assert machine.cpus > 0
    assert machine.memory_bytes > 1 << 28


def test_a_part_of_the_memory_is_not_given_away() -> None:
    capacity = Machine("here", 2.0, 100 * GIB, (Gpu(3, "GPU-x", "card", 24 * GIB),)).capacity
    assert capacity.memory_bytes == pytest.approx(95 * GIB, rel=1e-6)
    assert capacity.gpus == (3,)


def test_what_is_promised_to_model_files_is_not_promised_to_replicas(tmp_path: Path) -> None:
    root = tree(tmp_path, {})
    assert arena_bytes(0, root) == 16 * GIB
    assert arena_bytes(3 * GIB, root) == 3 * GIB
    machine = Machine("here", 2.0, 100 * GIB, arena_bytes=50 * GIB)
    assert machine.usable_bytes == 95 * GIB
    assert machine.capacity.memory_bytes == 45 * GIB
    assert Machine("here", 2.0, 10 * GIB, arena_bytes=50 * GIB).capacity.memory_bytes == 0


def test_cpus_are_promised_once_unless_they_are_shared() -> None:
    assert Machine("here", 2.0, 10 * GIB).capacity.promised_cpus == 2
    capacity = Machine("here", 2.0, 10 * GIB, cpu_overcommit=4.0).capacity
    assert (capacity.cpus, capacity.promised_cpus) == (2, 8)
