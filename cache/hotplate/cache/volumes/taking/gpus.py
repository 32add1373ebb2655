"""Which kinds of GPU a node has, as its driver says."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_DRIVER = Path("/proc/driver/nvidia/gpus")
_MODEL = "Model:"


def gpu_kinds(driver: Path = _DRIVER) -> str:
    """Their names, each once; "" where there are none."""
    found = set()
    with suppress(OSError):
        for about in driver.glob("*/information"):
            lines = about.read_text(errors="replace").splitlines()
            found |= {
                line.removeprefix(_MODEL).strip() for line in lines if line.startswith(_MODEL)
            }
    return ", ".join(sorted(found))
