"""Which GPUs there are: as the platform finds them, as PyTorch does, and as a replica sees them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from hotplate.deploy.local.gpu_usage import GpuUsage, read_gpus
from hotplate.deploy.local.machine import Gpu, Machine, detect, memory_bytes
from hotplate.deploy.local.standby.warm_process import gpu_variables
from loadtests.gpu.finding import Finding, ensure
from loadtests.harness.child_process import checkout_environ

GIB = 1 << 30
VISIBLE = "CUDA_VISIBLE_DEVICES"
ANSWER_S = 50.0
SEEN = """
import json, torch
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
uuids = [str(getattr(torch.cuda.get_device_properties(n), "uuid", "")) for n in range(count)]
print(json.dumps(uuids))
"""

BUSY_GIB = 2
BUSY = f"""
import torch
kept = torch.zeros({BUSY_GIB} << 30, dtype=torch.uint8, device="cuda")
matrix = torch.ones(4096, 4096, device="cuda")
print("busy", flush=True)
while True:
    for _ in range(20):
        matrix @ matrix
    torch.cuda.synchronize()
"""
LOOKS, LOOK_S = 20, 0.25


def detected(folder: Path) -> Iterator[Finding]:
    """`deploy.machine` by NVML, beside PyTorch."""
    import torch

    gpus = detect(visible_gpus=os.environ.get(VISIBLE)).gpus
    ensure(bool(gpus), "NVML finds no GPU, but PyTorch does")
    ensure(detect(visible_gpus="").gpus == (), "no GPU is visible, but NVML's are found")
    for gpu in gpus:
        ensure(gpu.uuid.startswith("GPU-"), f"{gpu.uuid} is no UUID of a GPU")
        for name in (gpu.uuid, str(gpu.index)):
            narrowed = detect(visible_gpus=name).gpus
            ensure(narrowed == (gpu,), f"{VISIBLE}={name} leaves {narrowed} of {gpus}")
    seen = torch.cuda.device_count()
    ensure(len(gpus) == seen, f"NVML finds {len(gpus)} GPUs, PyTorch {seen}")
    first = torch.cuda.get_device_properties(0)
    same = [gpu for gpu in gpus if gpu.name == first.name]
    ensure(bool(same), f"PyTorch names {first.name}, NVML {[gpu.name for gpu in gpus]}")
    apart = abs(same[0].memory_bytes - first.total_memory) / first.total_memory
    ensure(apart < 0.1, f"{same[0].memory_bytes} bytes by NVML, {first.total_memory} by PyTorch")
    size = f"{same[0].memory_bytes / GIB:.1f} GiB"
    yield Finding("GPUs as the platform detects them", f"{len(gpus)}: {first.name}, {size}", True)


def visible(folder: Path) -> Iterator[Finding]:
    """What a process sees that the engine gives no GPU, or one."""
    gpu = machine().gpus[0]
    none = _seen(gpu_variables(()))
    ensure(not none, f"a process without GPUs sees {none}")
    uuid = _only_one(_seen(gpu_variables((gpu.index,))))
    yield Finding(f"{VISIBLE}: none, and one by its index", "0 and 1 seen", True)
    if gpu.uuid:
        by_uuid = _only_one(_seen({VISIBLE: gpu.uuid}))
        ensure(gpu.uuid.endswith(uuid), f"index {gpu.index} is {uuid}, by NVML {gpu.uuid}")
        ensure(by_uuid == uuid, f"{gpu.uuid} is {by_uuid}, by its index {uuid}")
        yield Finding(f"{VISIBLE}: by UUID", "the same one", True)


def used(folder: Path) -> Iterator[Finding]:
    """What NVML says of a GPU for replicas' figures: before, while it is busy, and after."""
    index = machine().gpus[0].index
    idle = read_gpus([index])[index]
    environ = {**checkout_environ(), **gpu_variables((index,))}
    command = [sys.executable, "-c", BUSY]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE) as busy:
        try:
            assert busy.stdout is not None
            ensure(busy.stdout.readline() == b"busy\n", "a process that keeps a GPU busy ended")
            seen = _until(index, lambda share: share > 0.5)
        finally:
            busy.kill()
    after = _until(index, lambda share: share < 0.5)
    more_bytes = seen.memory_bytes - idle.memory_bytes
    ensure(seen.share > 0.5, f"a busy GPU worked for {seen.share:.0%} of the time")
    ensure(BUSY_GIB * GIB <= more_bytes < 2 * BUSY_GIB * GIB, f"{more_bytes} bytes more are taken")
    ensure(after.share < 0.5, f"a GPU that nobody uses works for {after.share:.0%} of the time")
    figure = f"{idle.share:.0%}, {seen.share:.0%}, {after.share:.0%}; {more_bytes / GIB:.2f} GiB"
    yield Finding("a GPU's work before, while and after one is busy; its memory", figure, True)


def _until(index: int, enough: Callable[[float], bool]) -> GpuUsage:
    """The first reading that is enough, or the last."""
    for _ in range(LOOKS):
        time.sleep(LOOK_S)  # NVML says nothing by itself, and no loop runs here
        found = read_gpus([index])[index]
        if enough(found.share):
            break
    return found


def machine() -> Machine:
    """This machine with its first GPU only: by NVML, or as PyTorch says where NVML has none."""
    try:
        found = detect(visible_gpus=os.environ.get(VISIBLE))
    except ModuleNotFoundError:
        cpus = float(len(os.sched_getaffinity(0)))
        found = Machine(socket.gethostname(), cpus, memory_bytes())
    return replace(found, gpus=found.gpus[:1] or (_by_torch(),))


def _by_torch() -> Gpu:
    import torch

    first = os.environ.get(VISIBLE, "0").partition(",")[0].strip()
    about = torch.cuda.get_device_properties(0)
    return Gpu(int(first) if first.isdigit() else 0, "", about.name, about.total_memory)


def _seen(variables: dict[str, str]) -> list[str]:
    """UUIDs of the GPUs that PyTorch finds in a process with these variables."""
    environ = {**checkout_environ(), **variables}
    done = subprocess.run(
        [sys.executable, "-c", SEEN], env=environ, capture_output=True, text=True, timeout=ANSWER_S
    )
    ensure(done.returncode == 0, f"with {variables}: {done.stderr.strip()[-300:]}")
    uuids: list[str] = json.loads(done.stdout)
    return uuids


def _only_one(uuids: list[str]) -> str:
    ensure(len(uuids) == 1, f"a process with one GPU sees {len(uuids)}: {uuids}")
    return uuids[0]
