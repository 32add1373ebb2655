"""The pinned ring and the copy stream, without a file and with nothing but PyTorch."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loadtests.gpu.finding import Finding, ensure

SIZE_BYTES = 1 << 30
ODD_BYTES = 3
"""Beyond whole slots, so that the last copy is a short one."""
LIMIT_RATIO = 0.5
"""Of pinned memory's speed. Here cores also copy the bytes into the ring."""


class InMemory:
    """Bytes in the host's memory, all of them present."""

    def __init__(self, tensor: Any) -> None:
        self._address = tensor.data_ptr()

    def wait(self, start: int, stop: int) -> None:
        """Returns at once: they are present."""

    def arrived(self, start: int, stop: int) -> bool:
        return True

    def memory(self, start: int, stop: int) -> memoryview:
        bytes_there = (ctypes.c_ubyte * (stop - start)).from_address(self._address + start)
        return memoryview(bytes_there)

    def read_into(self, start: int, view: memoryview) -> None:
        target = ctypes.addressof(ctypes.c_ubyte.from_buffer(view))
        ctypes.memmove(target, self._address + start, len(view))


def ring(folder: Path) -> Iterator[Finding]:
    """1 GiB through the ring, bit for bit, beside as many bytes out of pinned memory."""
    import torch

    from hotplate.serving.streaming.device import CudaDevice, device_for
    from hotplate.serving.streaming.staging import Staging

    device = device_for("cuda")
    ensure(isinstance(device, CudaDevice), f"weights to cuda go by {device}")
    assert device is not None
    generator = torch.Generator().manual_seed(1)
    size_bytes = SIZE_BYTES + ODD_BYTES
    source = torch.randint(0, 256, (size_bytes,), dtype=torch.uint8, generator=generator)
    staging = Staging(device)
    data = InMemory(source)
    right = source.to("cuda")
    for turn in range(3):  # the first one makes the ring, the others reuse memory that was read
        began = time.perf_counter()
        landed = staging.land(data, 0, size_bytes).memory()
        torch.cuda.current_stream().synchronize()
        took_s = time.perf_counter() - began
        ensure(landed.device.type == "cuda", f"it landed on {landed.device}")
        ensure(bool(torch.equal(landed, right)), f"turn {turn}: bytes are wrong on the GPU")
        del landed
    staging.close()
    pinned_s = _pinned_s(size_bytes)
    figure = f"{size_bytes / took_s / 1e9:.1f} GB/s, x pinned {pinned_s / took_s:.2f}"
    title = "pinned ring and copy stream"
    yield Finding(title, figure, pinned_s / took_s >= LIMIT_RATIO, f"to reach: x {LIMIT_RATIO}")


def _pinned_s(size_bytes: int) -> float:
    import torch

    source = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(size_bytes, dtype=torch.uint8, device="cuda")
    target.copy_(source)
    torch.cuda.synchronize()
    began = time.perf_counter()
    target.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    return time.perf_counter() - began
