"""NVML of four GPUs that are none: with this folder on `PYTHONPATH` a platform hands them out.

Nothing can be computed on them; what is measured is who has them for how long.
"""

from __future__ import annotations

from types import SimpleNamespace

GPUS = 4
MEMORY_BYTES = 8 << 30


class NVMLError(Exception):
    pass


def nvmlInit() -> None: ...


def nvmlShutdown() -> None: ...


def nvmlDeviceGetCount() -> int:
    return GPUS


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetUUID(handle: int) -> str:
    return f"GPU-00000000-0000-0000-0000-{handle:012}"


def nvmlDeviceGetName(handle: int) -> str:
    return "sham"


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    return SimpleNamespace(total=MEMORY_BYTES, used=0)


def nvmlDeviceGetUtilizationRates(handle: int) -> SimpleNamespace:
    return SimpleNamespace(gpu=0)
