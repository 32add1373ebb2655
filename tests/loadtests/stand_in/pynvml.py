"""The GPU that is none, and NVML's package for it."""

from __future__ import annotations

from types import SimpleNamespace

NAME = "stand-in"
MEMORY_BYTES = 8 << 30


def uuid(index: int) -> str:
    return f"00000000-0000-0000-0000-{index:012}"


class NVMLError(Exception):
    pass


def nvmlInit() -> None: ...


def nvmlShutdown() -> None: ...


def nvmlDeviceGetCount() -> int:
    return 1


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetUUID(handle: int) -> str:
    return f"GPU-{uuid(handle)}"


def nvmlDeviceGetName(handle: int) -> str:
    return NAME


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    return SimpleNamespace(total=MEMORY_BYTES)
