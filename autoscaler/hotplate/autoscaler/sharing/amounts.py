"""Amounts of resources: GPUs, CPUs, memory, and the number of replicas."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

GIB = 1 << 30

_ROUNDING = 1e-9
"""The tolerance in comparisons: the rounding of 0.1 + 0.2 must not cost a replica."""


class Amounts(NamedTuple):
    """An amount of each resource; usually the scarcest comes first."""

    gpus: float = 0.0
    cpus: float = 0.0
    memory_bytes: float = 0.0
    replicas: float = 0.0

    def within(self, limit: Amounts) -> bool:
        """Whether no amount is above that of `limit`."""
        return (
            self[0] <= limit[0] + _ROUNDING
            and self[1] <= limit[1] + _ROUNDING
            and self[2] <= limit[2] + _ROUNDING
            and self[3] <= limit[3] + _ROUNDING
        )

    def plus(self, other: Amounts, times: float = 1.0) -> Amounts:
        return Amounts(
            self.gpus + times * other.gpus,
            self.cpus + times * other.cpus,
            self.memory_bytes + times * other.memory_bytes,
            self.replicas + times * other.replicas,
        )


NOTHING = Amounts()
UNLIMITED = Amounts(math.inf, math.inf, math.inf, math.inf)


def over(amount: float, limit: float) -> bool:
    """Whether an amount is above its limit by more than rounding."""
    return amount > limit + _ROUNDING


def total(amounts: Iterable[tuple[Amounts, float]]) -> Amounts:
    """The sum of (amounts, how often they count)."""
    gpus = cpus = memory_bytes = replicas = 0.0
    for each, times in amounts:
        gpus += times * each[0]
        cpus += times * each[1]
        memory_bytes += times * each[2]
        replicas += times * each[3]
    return Amounts(gpus, cpus, memory_bytes, replicas)


def amount_text(dimension: int, amount: float, digits: int = 3) -> str:
    """`2 GPUs`, `0.5 CPUs`, `12 GiB of memory`, `1 replica`; to `digits` significant digits."""
    if dimension == Amounts._fields.index("memory_bytes"):
        return f"{amount / GIB:.{digits}g} GiB of memory"
    noun = ("GPU", "CPU", "", "replica")[dimension]
    return f"{amount:.{digits}g} {noun}" + ("" if amount == 1 else "s")
