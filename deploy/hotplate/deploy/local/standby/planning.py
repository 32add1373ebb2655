"""How many standbys each pool should have now, and when that is to be asked again.

Pure: `now` is loop time, in seconds. What the planner has learnt of starts says how many are
wanted; here are the bounds of this machine: memory and GPUs that replicas leave, and calm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hotplate.autoscaler.standby.planner import StandbyPlanner, TypePlan
from hotplate.deploy.local.standby.pool import StandbyPool
from hotplate.deploy.standbys import StandbySettings

PLAN_S = 5.0
"""Between two plans while there is a standby; starts and ends are looked at at once."""
SHORTEST_S = 0.1
"""Pause before what is due is tried."""

Pools = Mapping[str, StandbyPool]


class StandbyPlans:
    """Of one machine."""

    def __init__(self, settings: StandbySettings, machine_bytes: int) -> None:
        """`machine_bytes` is what all replicas may use."""
        self.settings = settings
        self.planner = StandbyPlanner(0.0)
        self.allowances: Mapping[str, int] = {}
        """How many an organization's starts may claim."""
        self._machine_bytes = machine_bytes
        self._free_bytes = machine_bytes
        self._busy_gpus: frozenset[int] = frozenset()
        self._was_starting = False
        self._calm_at = 0.0

    def leave(self, free_bytes: int, busy_gpus: Iterable[int]) -> None:
        """Replicas leave so much memory, and have these GPUs."""
        self._free_bytes, self._busy_gpus = free_bytes, frozenset(busy_gpus)

    def has_gpus(self, pool: StandbyPool) -> bool:
        """Whether no replica has one of its GPUs."""
        return not self._busy_gpus.intersection(pool.gpus)

    def surplus(self, pools: Pools) -> StandbyPool | None:
        """The pool that gives one back, where all of them take more than replicas leave."""
        if sum(pool.memory_bytes for pool in pools.values()) <= self._free_bytes:
            return None
        return max(pools.values(), key=lambda pool: pool.memory_bytes)

    def watch(self, starting: bool, now: float) -> None:
        """Whether cold starts are under way: none is made beside them, nor at once after them."""
        if starting or self._was_starting:
            self._calm_at = now + self.settings.calm_s
        self._was_starting = starting

    def plan(self, pools: Pools, now: float) -> dict[str, TypePlan]:
        """Of each pool whose GPUs are free, and whose processes are of use."""
        usable = {
            name: pool
            for name, pool in pools.items()
            if self.has_gpus(pool) and not pool.found_unusable
        }
        stocks = {name: pool.stock() for name, pool in usable.items()}
        templates = [name for name, pool in usable.items() if not pool.unforkable]
        policy = self.settings.policy(self._machine_bytes, self._free_bytes, usable, templates)
        plans = self.planner.plan(stocks, policy, now, self.allowances)
        return {name: plan for name, plan in plans.items() if name in usable}

    def to_make(self, pool: StandbyPool, now: float) -> int:
        """How many are made now: none beside cold starts, but for what starts wait for; and none
        before one has told what it imports, for it would import nothing of that."""
        due_at = pool.retry_at if pool.waiting else max(self._calm_at, pool.retry_at)
        return pool.plan.make if pool.plan and pool.is_proven and now >= due_at else 0

    def pause_s(self, pools: Pools, now: float) -> float | None:
        """Until the next plan, if nothing happens before; None = for ever."""
        due = [
            max(SHORTEST_S, self._calm_at - now, pool.retry_at - now)
            for pool in pools.values()
            if pool.plan is not None and pool.plan.make and pool.is_proven
        ]
        lives = any(pool.count for pool in pools.values())
        return min([*due, PLAN_S] if lives else due, default=None)
