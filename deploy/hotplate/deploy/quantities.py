"""Amounts of CPU, memory and GPU as people write them in BentoML and Kubernetes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from hotplate.deploy.errors import BadQuantity
from hotplate.deploy.workload import Resources

GIB = 1 << 30
MEMORY_LIMIT_BYTES = 1 << 50
"""1 PiB: no machine has it, so a bare number this large was meant as bytes, not GiB."""

_UNITS = {
    **{unit: 1000**power for power, unit in enumerate(("", "k", "m", "g", "t", "p"))},
    **{unit: 1024**power for power, unit in enumerate(("ki", "mi", "gi", "ti", "pi"), start=1)},
}
_NUMBER = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)(?:e([+-]?\d{1,3}))?\s*([A-Za-z]*)\s*")


def cpus(amount: object) -> float:
    """CPU cores of `2`, `0.5`, `"2"` or `"500m"` (thousandths). Raises `BadQuantity`."""
    number, unit = _read(amount, "CPU", "cores, as in 2, 0.5 or '500m'")
    if unit not in ("", "m"):
        raise _bad(amount, "CPU", "cores, as in 2, 0.5 or '500m'")
    return number / 1000 if unit == "m" else number


def memory_bytes(amount: object) -> int:
    """Bytes of a number in GiB (as BentoML reads it) or of `"512Mi"`, `"512MiB"`, `"1G"` …

    Raises `BadQuantity`.
    """
    form = "GiB as a number, or with a unit, as in 16, '512Mi' or '1G'"
    number, written = _read(amount, "memory", form)
    unit = written.lower().removesuffix("b")
    if unit not in _UNITS or written == "m":  # Kubernetes' "m" is a thousandth of a byte
        raise _bad(amount, "memory", form)
    size = number * (_UNITS[unit] if written else GIB)
    if size > MEMORY_LIMIT_BYTES:
        raise _bad(amount, "memory", f"at most 1 PiB, {form}")
    return math.ceil(size)


def gpus(amount: object) -> float:
    """GPUs: a whole number, or a fraction below 1 that shares one. Raises `BadQuantity`."""
    form = "a whole number, or a fraction below 1 to share one, as in 1 or 0.5"
    number, unit = _read(amount, "GPU", form)
    if unit or (number > 1 and not number.is_integer()):
        raise _bad(amount, "GPU", form)
    return number


def resources_of(config: Mapping[str, Any]) -> Resources:
    """Resources of a BentoML service configuration: its `resources{cpu,memory,gpu}`.

    What is absent, null or empty counts as not asked for (0). Raises `BadQuantity`.
    """
    wanted = config.get("resources") or {}
    if not isinstance(wanted, Mapping):
        raise _bad(wanted, "resources", "a table with cpu, memory and gpu")

    def given(name: str) -> object:
        return wanted.get(name) or 0

    return Resources(cpus(given("cpu")), memory_bytes(given("memory")), gpus(given("gpu")))


def _read(amount: object, what: str, form: str) -> tuple[float, str]:
    if isinstance(amount, bool) or not isinstance(amount, int | float | str):
        raise _bad(amount, what, form)
    match = _NUMBER.fullmatch(str(amount))
    number = float(f"{match[1]}e{match[2] or 0}") if match else math.inf
    if match is None or not math.isfinite(number):  # also negative, nan
        raise _bad(amount, what, form)
    return number, match[3]


def _bad(amount: object, what: str, form: str) -> BadQuantity:
    return BadQuantity(f"{what} amount {amount!r:.80} cannot be read: write {form}.")
