"""All checks of a machine with a GPU: their names, what they need, and how long they may take.

Standard library only: `gpu_day.py` and the tests marked `gpu` say from this list what is missing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from loadtests.gpu.finding import Finding
from loadtests.harness.distributions import missing

ENGINE = ("torch", "aiohttp")
BENTO = (*ENGINE, "bentoml")
PLATFORM = (*BENTO, "alembic", "blake3", "cryptography", "httptools", "pynvml", "uv", "uvloop")
WEIGHTS = ("torch", "safetensors")


@dataclass(frozen=True)
class Check:
    name: str
    title: str
    needs: tuple[str, ...]
    """Modules, beyond our own and the standard library."""
    limit_s: float
    quick: bool = True
    """Whether it is also a test; tests take seconds."""

    def missing(self) -> list[str]:
        """The packages that it needs and this Python does not have."""
        return missing(self.needs)

    def run(self, folder: Path) -> Iterable[Finding]:
        """Yields the findings as they are made. `folder` is empty and the check's own.

        Raises `CheckFailed` with a sentence where something is not as it should be, and passes on
        any other error.
        """
        module, _, function = self.name.partition(".")
        check: Callable[[Path], Iterable[Finding]]
        check = getattr(importlib.import_module(f"loadtests.gpu.{module}"), function)
        return check(folder)


CHECKS = (
    Check("hardware.detected", "GPUs as the platform detects them", ("torch", "pynvml"), 45),
    Check("hardware.visible", "CUDA_VISIBLE_DEVICES", ("torch",), 60),
    Check("hardware.used", "how much a GPU works, and its memory", ("torch", "pynvml"), 60),
    Check("replicas.whole", "a replica on the GPU, by the local engine", ENGINE, 60),
    Check("replicas.halves", "two replicas on halves of a GPU", ENGINE, 60),
    Check("standbys.plain", "a context made in a standby, used in a replica", ("torch",), 75),
    Check("replicas.bento", "a replica of a bento on the GPU, by the local engine", BENTO, 90),
    Check("standbys.bento", "a bento's replica from a standby", ("torch", "bentoml"), 90),
    Check("staging.ring", "pinned ring and copy stream", ("torch",), 45),
    Check("weights.every_dtype", "every dtype and shape, bit for bit", WEIGHTS, 60),
    Check("weights.arriving", "weights that still arrive", WEIGHTS, 45),
    Check("weights.pretrained", 'from_pretrained(…).to("cuda")', (*WEIGHTS, "transformers"), 75),
    Check("whole_platform.deployed", "the whole platform", PLATFORM, 240, quick=False),
    Check("speed.measured", "bench.py gpu", WEIGHTS, 240, quick=False),
)
