"""Which GPUs there are: as the platform finds them, as PyTorch does, and as a replica sees them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

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
