"""Amounts in the form in which a cluster gives them back: it changes any other one."""

from __future__ import annotations

from hotplate.deploy import quantities
from hotplate.deploy.errors import BadQuantity

_BINARY = [(1024**power, unit) for power, unit in enumerate(("", "Ki", "Mi", "Gi", "Ti", "Pi"))]
_DECIMAL = [(1000**power, unit) for power, unit in enumerate(("", "k", "M", "G", "T", "P"))]


def thousandths(cpus: float) -> str:
    """CPUs: `2` or `1500m`; a part of a thousandth counts as a whole one."""
    number = -int(-cpus * 1000 // 1)
    return f"{number}m" if number % 1000 else str(number // 1000)


def binary(size_bytes: int) -> str:
    """Bytes, with the largest unit of which they are a whole number: `512Mi`, `16G`, `1500`."""
    units = _BINARY if size_bytes % 1024 == 0 else _DECIMAL
    size, unit = max(each for each in units if size_bytes % each[0] == 0)
    return f"{size_bytes // size}{unit}"


def cpus(amount: object) -> float:
    """CPUs of what a cluster says; 0 if it says nothing that can be read."""
    try:
        return quantities.cpus(amount)
    except BadQuantity:
        return 0.0


def size_bytes(amount: object) -> int:
    """Bytes of what a cluster says: a number without a unit is of bytes. 0 if it cannot be read."""
    text = str(amount or 0)
    try:
        return int(text) if text.isdigit() else quantities.memory_bytes(text)
    except BadQuantity:
        return 0
