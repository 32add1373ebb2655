"""Standbys: warm processes that become replicas. What an operator allows of them on a node
(`[standby]` of the settings), what is shown of them, and what is asked of whoever keeps them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from hotplate.autoscaler.standby.planner import StandbyPolicy


class StandbyMode(StrEnum):
    OFF = "off"
    AUTOMATIC = "automatic"
    """A template per environment, or, where it cannot be forked, as many as nine of ten starts
    needed lately."""
    FIXED = "fixed"
    """`count` per environment, as soon as it has had one start."""


@dataclass(frozen=True)
class StandbySettings:
    mode: StandbyMode = StandbyMode.AUTOMATIC
    """off, automatic or fixed."""
    count: int = 1
    """How many per environment and set of GPUs where it is fixed."""
    memory_share: float = 0.1
    """Of the machine's memory, the most that all standbys take; an embedder's takes 0.6 GB."""
    unused_s: float = 1800.0
    """Of an environment without a start for so long none is kept; not where it is fixed."""
    min_starts: int = 2
    """Starts in seven days from which on an environment has any; not where it is fixed."""
    calm_s: float = 10.0
    """After the last cold start, until one is made: its imports need a core for seconds."""
    start_limit_s: float = 300.0
    """How long one may take until it is warm."""

    def __post_init__(self) -> None:
        """Raises ValueError with a sentence."""
        if self.mode not in list(StandbyMode):
            raise ValueError(f"mode {self.mode!r} is none of {', '.join(StandbyMode)}")
        if self.count < 0:
            raise ValueError(f"count {self.count} is below 0")
        if not 0 <= self.memory_share <= 1:
            raise ValueError(f"memory_share {self.memory_share:g} is not within 0 and 1")
        for name in ("unused_s", "calm_s", "start_limit_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} {getattr(self, name):g} is not 0 or more seconds")

    def budget_bytes(self, machine_bytes: int) -> int:
        """The most that all standbys take of a machine with so much memory for replicas."""
        return int(self.memory_share * machine_bytes)

    def policy(
        self,
        machine_bytes: int,
        free_bytes: int,
        pools: Collection[str],
        templates: Collection[str] = (),
    ) -> StandbyPolicy:
        """For the planner; `free_bytes` is what replicas leave, `pools` are all that there are, and
        `templates` those of templates."""
        if self.mode == StandbyMode.OFF:
            return StandbyPolicy(fixed=dict.fromkeys(pools, 0))
        fixed = self.mode == StandbyMode.FIXED
        return StandbyPolicy(
            memory_bytes=max(0, min(self.budget_bytes(machine_bytes), free_bytes)),
            unused_s=self.unused_s,
            min_starts=self.min_starts,
            fixed=dict.fromkeys(pools, self.count) if fixed else {},
            templates=templates,
        )


@dataclass(frozen=True)
class StandbyView:
    """What is shown of a pool."""

    pool: str
    environment: str
    gpus: tuple[int, ...]
    ready: int
    making: int
    wanted: int
    reason: str
    memory_bytes: int
    """What they take together."""
    hits: int
    """Starts of the last seven days that became a standby's."""
    starts: int
    """All starts of the last seven days."""
    refill_s: float
    """From its birth until a standby is warm."""
    templates: int = 0
    """How many of those that are ready are templates, from which each start is forked."""
    forks: int = 0
    """How many replicas its templates have forked since the platform started."""
    unforkable: str = ""
    """Why it has standbys in place of a template; empty where it has, or may have, one."""
    organization: str = ""
    """Whose starts claim them; empty = anybody's, as all of them trust each other."""


class Standbys(Protocol):
    """Those that an engine keeps for its replicas, its face for whoever sets and shows them."""

    @property
    def settings(self) -> StandbySettings:
        """Those in force."""

    @property
    def memory_bytes(self) -> int:
        """What all of them take now."""

    def set(self, settings: StandbySettings) -> None:
        """From now on these are in force."""

    def allow(self, allowances: Mapping[str, int]) -> None:
        """How many an organization's starts may claim; those that are not named have no limit."""

    def forget(self, owners: Collection[str]) -> None:
        """These organizations are gone: none of their standbys stays."""

    def views(self) -> Sequence[StandbyView]:
        """What there is of each pool that is in use, and why."""


class NoStandbys(Standbys):
    """Of an engine that keeps none, whatever is set."""

    def __init__(self, settings: StandbySettings | None = None) -> None:
        self._settings = settings or StandbySettings(StandbyMode.OFF)

    @property
    def settings(self) -> StandbySettings:
        return self._settings

    @property
    def memory_bytes(self) -> int:
        return 0

    def set(self, settings: StandbySettings) -> None:
        self._settings = settings

    def allow(self, allowances: Mapping[str, int]) -> None:
        pass

    def forget(self, owners: Collection[str]) -> None:
        pass

    def views(self) -> Sequence[StandbyView]:
        return ()
