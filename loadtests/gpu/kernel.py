"""What a replica computes on its GPU, and reports, in whatever process it runs."""

from __future__ import annotations

import os
import sys
from typing import Any

SIZE = 1024
ROUNDS = 2


def has_context() -> bool:
    """Whether this process has a CUDA context already; makes none."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def answer() -> dict[str, Any]:
    """Multiplies matrices on the first GPU, checks every element, and reports what it saw."""
    import torch

    twos = torch.full((SIZE, SIZE), 2.0, device="cuda")
    right = True
    for _ in range(ROUNDS):
        right = right and bool((twos @ twos == 4.0 * SIZE).all())
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    return {
        "pid": os.getpid(),
        "right": right,
        "count": torch.cuda.device_count(),
        "uuid": str(getattr(torch.cuda.get_device_properties(0), "uuid", "")),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "used_bytes": total_bytes - free_bytes,
    }
