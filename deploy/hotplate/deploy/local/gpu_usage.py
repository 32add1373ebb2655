"""How much GPUs work and what of their memory is taken, as NVML says it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple

log = logging.getLogger(__name__)


class GpuUsage(NamedTuple):
    """Of one GPU."""

    share: float
    """For how much of the last moment (NVML: a sixth to one second) anything ran on it: 0 to 1."""
    memory_bytes: int


def read_gpus(indices: Collection[int]) -> Mapping[int, GpuUsage]:
    """Of these, by their index, as far as it is known; none where there is no driver. Blocks."""
    if not indices:
        return {}
    import pynvml

    found: dict[int, GpuUsage] = {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    try:
        for index in indices:
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                share = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
                used = pynvml.nvmlDeviceGetMemoryInfo(handle).used
            except pynvml.NVMLError as error:  # not supported (MIG), or it fell off the bus
                log.debug("GPU %s does not say how much it works: %s", index, error)
            else:
                found[index] = GpuUsage(share, int(used))
    finally:
        pynvml.nvmlShutdown()
    return found
