"""A template in virtual time: which starts it forks, and how long they take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle


@dataclass(frozen=True)
class TemplateSupply:
    """What is known of a deployment's template. Times are seconds."""

    forks_s: Sequence[float]
    """What forks take in turn, over and over; one at least."""
    there_at: float = math.inf
    """From when on there is one, if no cold start is under way; inf = once one is made after a cold
    start."""
    calm_s: float = 0.0
    """After the last cold start is over, until one is made."""
    making_s: float = 0.0
    """How long that takes."""
    unused_s: float = math.inf
    """After the last start, until it is given up."""


class SimulatedTemplate:
    """Of one deployment whose starts are in the order of their times.

    As the local engine has it: one is made beside no cold start, and each start that finds it is
    forked. That starts wait for it where very many come at once is not simulated.
    """

    def __init__(self, supply: TemplateSupply) -> None:
        self._supply = supply
        self._forks_s = cycle(supply.forks_s)
        self._there_at = supply.there_at
        self._calm_at = 0.0
        """When no cold start is under way any longer."""
        self._started_at = 0.0
        """The last start's time."""

    def start_s(self, cold_start_s: float, now: float) -> float:
        """How long a start takes that begins now, and takes `cold_start_s` without a template."""
        supply = self._supply
        if self._there_at <= now and now >= self._started_at + supply.unused_s:
            self._there_at = math.inf
        self._started_at = now
        if now >= self._there_at:
            return next(self._forks_s)
        if now < self._there_at - supply.making_s:
            self._calm_at = max(self._calm_at, now + cold_start_s)
            self._there_at = self._calm_at + supply.calm_s + supply.making_s
        return cold_start_s
