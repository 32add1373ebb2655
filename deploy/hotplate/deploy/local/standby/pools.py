"""The standbys of one machine: warm processes, one pool per environment and set of GPUs.

`planning` says how many there should be of each, `lifecycle` makes and ends them, `learnt` keeps
what is known of starts over restarts; here these meet the engine, which takes standbys for its
replicas, and tells of its starts and of what its replicas leave.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from hotplate.autoscaler.standby.start_history import HISTORY_S
from hotplate.deploy.local.host import ProcessHost
from hotplate.deploy.local.runtime import Command, Warm
from hotplate.deploy.local.standby import learnt
from hotplate.deploy.local.standby.lifecycle import StandbyLives
from hotplate.deploy.local.standby.planning import StandbyPlans
from hotplate.deploy.local.standby.pool import StandbyPool, name_of
from hotplate.deploy.local.standby.warm_process import WarmProcess
from hotplate.deploy.standbys import StandbyMode, Standbys, StandbySettings, StandbyView

SAVE_S = 60.0
"""What was learnt is written at most so often: losing a minute of it costs nothing."""
CORES = len(os.sched_getaffinity(0))
LONGEST_WAIT_S = 30.0
"""Of a start for a template; one that imports a large framework takes 10 s on a busy machine."""

log = logging.getLogger(__name__)


class StandbyPools(Standbys):
    """Of one engine, on its event loop."""

    def __init__(
        self,
        host: ProcessHost,
        settings: StandbySettings,
        *,
        machine_bytes: int,
        rng: random.Random,
        starting: Callable[[], bool],
        changed: Callable[[], None],
    ) -> None:
        """`machine_bytes` is what all replicas may use; while some are `starting` no standby is
        made, for that would slow them down; `changed` is called when `views` did."""
        self._records = host.records
        self._host = host
        self._starting = starting
        self._changed = changed
        self._pools: dict[str, StandbyPool] = {}
        self._plans = StandbyPlans(settings, machine_bytes)
        self._wake = asyncio.Event()
        self._planned = asyncio.Event()
        """Set by the next round of planning, which leaves another one."""
        self._lives = StandbyLives(host, rng, self._wake.set)
        self._saved_at = 0.0
        self._shown: list[StandbyView] = []

    def start(self) -> None:
        self._plans.planner, self._pools = learnt.recall(self._records.standbys_file, _now())
        self._wake.set()  # what the last engine had comes back
        self._planning = asyncio.create_task(self._plan_for_ever(), name="standbys")

    async def close(self) -> None:
        """End them all, and keep what was learnt."""
        self._planning.cancel()
        await asyncio.wait([self._planning])
        for pool in self._pools.values():
            for standby in (*pool.ready, *pool.making):
                self._lives.end(pool, standby)
        await self._lives.finish()
        self._save()

    def set(self, settings: StandbySettings) -> None:
        self._plans.settings = settings
        self._wake.set()

    def allow(self, allowances: Mapping[str, int]) -> None:
        self._plans.allowances = allowances
        self._wake.set()

    def forget(self, owners: Collection[str]) -> None:
        for name, pool in list(self._pools.items()):
            if pool.warm.organization in owners:
                self._lives.end_all(pool, "its organization is gone")
                del self._pools[name]
                self._saved_at = -SAVE_S
        self._wake.set()

    def views(self) -> list[StandbyView]:
        history = self._plans.planner.history
        return [pool.view(history(name), _now()) for name, pool in self._pools.items()]

    @property
    def settings(self) -> StandbySettings:
        return self._plans.settings

    @property
    def memory_bytes(self) -> int:
        return sum(pool.memory_bytes for pool in self._pools.values())

    def warm(self) -> list[WarmProcess]:
        """All that wait for a replica."""
        return [each for pool in self._pools.values() for each in pool.ready.values()]

    def has_template(self, warm: Warm | None) -> bool:
        """Whether what starts so is forked now."""
        pool = self._pool_of(warm, ())
        return pool is not None and pool.has_template

    def take(self, command: Command, gpus: Sequence[int]) -> WarmProcess | None:
        """What this replica may start from: the caller has it do so, or `drop`s it."""
        pool = self._pool_of(command.warm, gpus)
        if pool is None or (command.processes > 1 and not pool.has_template):
            return None
        return pool.take()

    async def wait_for_template(
        self, warm: Warm | None, gpus: Sequence[int], limit_s: float
    ) -> bool:
        """Returns at once, unless so many start cold already that what starts now is ready sooner
        as a template's fork: then when there is one, or none can be had, after `limit_s` at
        most. Whether it has waited."""
        pool = self._pool_of(warm, gpus)
        if pool is None or not pool.is_crowded(CORES):
            return False
        pool.waiting += 1
        self._wake.set()
        try:
            async with asyncio.timeout(min(limit_s, LONGEST_WAIT_S)):
                await self._planned.wait()
                while pool.making and not pool.ready:
                    await self._planned.wait()
        except TimeoutError:
            log.info("%s: starts no longer wait for its template", pool.name)
        finally:
            pool.waiting -= 1
        return True

    def start_over(self, replica: str, *, ready: bool = False) -> None:
        """The start of that replica is: it is `ready`, or has ended."""
        for pool in self._pools.values():
            pool.start_over(replica, ready=ready)
        self._wake.set()

    def drop(self, standby: WarmProcess) -> None:
        """No replica has started from it: end it, but for a template that may start others."""
        if standby.is_spent:
            pools = [each for each in self._pools.values() if each.ready.pop(standby.id, None)]
            if standby.is_template and not pools:
                return  # another start has dropped it
            for pool in pools:
                pool.note_spent()
            self._lives.drop(standby)
            self._wake.set()

    def started(
        self,
        replica: str,
        command: Command,
        gpus: Sequence[int],
        organization: str,
        *,
        hit: bool,
    ) -> None:
        """The replica starts; `hit` = from a standby."""
        warm = command.warm
        if warm is None:
            return
        name = name_of(warm, gpus)
        pool = self._pools.get(name) or StandbyPool(warm, tuple(gpus))
        if command.processes > 1 and self._refusal(pool):
            return  # no standby would be of use to it
        if name not in self._pools:
            self._pools[name] = pool
            self._saved_at = -SAVE_S  # the next engine knows of it, whatever becomes of this one
        if pool.warm != warm:  # our own files are of another version, or the host's variables
            self._lives.end_all(pool, "replicas are now started in another way")
            pool.warm, pool.found_unforkable, pool.found_unusable, pool.spent = warm, "", "", 0
        self._plans.planner.started(name, _now(), hit=hit, organization=organization)
        pool.started(replica, hit=hit)
        self._wake.set()

    def give_way(self, free_bytes: int, busy_gpus: Iterable[int]) -> None:
        """Keep to the memory that replicas leave, and off their GPUs."""
        self._plans.leave(free_bytes, busy_gpus)
        for pool in self._pools.values():
            if not self._plans.has_gpus(pool):
                self._lives.end_all(pool, "its GPU is a replica's")
        while (largest := self._plans.surplus(self._pools)) is not None:
            self._lives.end_all(largest, "replicas need the memory", most=1)
        self._wake.set()

    def _pool_of(self, warm: Warm | None, gpus: Sequence[int]) -> StandbyPool | None:
        """The one whose members become what starts so; None = there is none."""
        pool = self._pools.get(name_of(warm, gpus)) if warm else None
        return pool if pool is not None and pool.warm == warm else None

    async def _plan_for_ever(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._plans.pause_s(self._pools, _now())):
                    await self._wake.wait()
            self._wake.clear()
            self._plans.watch(self._starting(), _now())
            try:
                self._carry_out(_now())
            except Exception:  # a bug here must not cost the replicas anything
                log.exception("standbys could not be planned")
            self._planned.set()
            self._planned = asyncio.Event()
            if _now() - self._saved_at >= SAVE_S:
                self._save()

    def _carry_out(self, now: float) -> None:
        for pool in self._pools.values():
            self._choose_kind(pool)
        plans = self._plans.plan(self._pools, now)
        for name, pool in list(self._pools.items()):
            pool.plan = plans.get(name)
            if pool.plan is None:
                continue
            for standby in pool.plan.give_back:
                self._lives.end(pool, standby)
            for _ in range(self._plans.to_make(pool, now)):
                self._lives.make(pool, self.settings.start_limit_s, self._refilled(name))
        views = self.views()
        if views != self._shown:
            self._shown = views
            self._changed()

    def _choose_kind(self, pool: StandbyPool) -> None:
        """Whether it has a template, or standbys."""
        pool.unforkable = self._refusal(pool)
        for standby, process in list(pool.ready.items()):
            if process.is_template is bool(pool.unforkable):
                self._lives.end(pool, standby)

    def _refusal(self, pool: StandbyPool) -> str:
        """Why it has no template; empty when it has."""
        if self.settings.mode != StandbyMode.AUTOMATIC:
            return f"mode is {self.settings.mode}"
        if pool.gpus:
            return "each process has a context of its own on its GPUs"
        if not pool.warm.template:
            return "its runtime forks nothing"
        if not self._host.cgroups.enforced:
            return "control groups cannot be used"
        return self._host.isolation.forks_refused or pool.found_unusable or pool.found_unforkable

    def _refilled(self, name: str) -> Callable[[float], None]:
        return lambda refill_s: self._plans.planner.refilled(name, refill_s)

    def _save(self) -> None:
        self._saved_at = now = _now()
        planner = self._plans.planner
        for name, pool in list(self._pools.items()):
            if not pool.count and planner.history(name).idle_s(now) >= HISTORY_S:
                del self._pools[name]
        with suppress(OSError):  # a full disk: it is only learnt
            self._records.save_standbys(learnt.to_keep(planner, self._pools.values(), now))


def _now() -> float:
    return asyncio.get_running_loop().time()
