"""NVML's package, for the GPU that is none."""

from __future__ import annotations

from types import SimpleNamespace

from sitecustomize import MEMORY_BYTES, uuid  # type: ignore[import-not-found]  # beside this file


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
    return "stand-in"


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    return SimpleNamespace(total=MEMORY_BYTES)
