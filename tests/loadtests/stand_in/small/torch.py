"""As much of PyTorch as replicas on a GPU and whoever looks for one ask for: imported in no time.

For the processes that have this folder and the one above on `PYTHONPATH`. A matrix has the same
number everywhere, which is all that `loadtests.gpu.kernel` makes. That PyTorch understands the same
calls is shown where `pytorch/` is in this folder's place.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import SimpleNamespace

from pynvml import MEMORY_BYTES, NAME, uuid

__version__ = "0"
version = SimpleNamespace(cuda="0")

_count = len(list(filter(None, os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(","))))
_began: list[str] = []


@dataclass(frozen=True)
class Tensor:
    shape: tuple[int, int]
    value: float

    def __matmul__(self, other: Tensor) -> Tensor:
        rows, inner = self.shape
        assert inner == other.shape[0]
        return Tensor((rows, other.shape[1]), inner * self.value * other.value)

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]  # element by element
        return Tensor(self.shape, float(self.value == other))

    def all(self) -> bool:
        return self.value != 0


def full(shape: tuple[int, int], value: float, *, device: str) -> Tensor:
    _began.append(device)
    return Tensor(shape, value)


cuda = SimpleNamespace(
    is_available=lambda: _count > 0,
    device_count=lambda: _count,
    is_initialized=lambda: bool(_began),
    get_device_name=lambda device=0: NAME,
    mem_get_info=lambda device=0: (MEMORY_BYTES // 4, MEMORY_BYTES),
    get_device_properties=lambda device: SimpleNamespace(
        name=NAME, total_memory=MEMORY_BYTES, uuid=uuid(0)
    ),
)
