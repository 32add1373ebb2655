"""The standbys of one machine: warm processes, one pool per environment and set of GPUs.

The planner says how many of each; here they are made, given to replicas, and ended.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import string
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from hotplate.autoscaler.errors import MemoryInvalid
from hotplate.autoscaler.standby.planner import StandbyPlanner, TypePlan
from hotplate.autoscaler.standby.start_history import HISTORY_S
from hotplate.deploy.errors import DeployError
from hotplate.deploy.local.records import Records
from hotplate.deploy.local.standby.pool import Pool, StandbyView, name_of
from hotplate.deploy.local.standby.process import StandbyProcess
from hotplate.deploy.local.standby.settings import StandbySettings
from hotplate.deploy.process.backoff import Backoff
from hotplate.deploy.runtime import Warm
from hotplate.deploy.sandbox.cgroups import Cgroups
from hotplate.deploy.sandbox.isolation import Walls
from hotplate.machine import foreign_folder

PLAN_S = 5.0
"""Between two plans while there is a standby; starts and ends are looked at at once."""
SHORTEST_S = 0.1
"""Pause before what is due is tried."""
SAVE_S = 60.0
"""What was learnt is written at most so often: losing a minute of it costs nothing."""

log = logging.getLogger(__name__)


class Standbys:
    """Of one engine, on its event loop."""

    def __init__(
        self,
        records: Records,
        cgroups: Cgroups,
        walls: Walls,
        settings: StandbySettings,
        machine_bytes: int,
        rng: random.Random,
        starting: Callable[[], bool],
        changed: Callable[[], None],
    ) -> None:
        """`machine_bytes` is what all replicas may use; while some are `starting` no standby is
        made, for that would slow them down; `changed` is called when `views` did."""
        self._allowances: Mapping[str, int] = {}
        self._records = records
        self._cgroups = cgroups
        self._walls = walls
        self._settings = settings
        self._machine_bytes = machine_bytes
        self._rng = rng
        self._starting = starting
        self._changed = changed
        self._pools: dict[str, Pool] = {}
        self._planner = StandbyPlanner(0.0)
        self._free_bytes = machine_bytes
        self._busy_gpus: frozenset[int] = frozenset()
        self._was_starting = False
        self._calm_at = 0.0
        self._saved_at = 0.0
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._shown: list[StandbyView] = []

    def start(self) -> None:
        self._recall()
        self._planning = asyncio.create_task(self._plan_for_ever(), name="standbys")

    async def close(self) -> None:
        """End them all, and keep what was learnt."""
        self._planning.cancel()
        await asyncio.wait([self._planning])
        for pool in self._pools.values():
            for one in (*pool.ready, *pool.making):
                self._end(pool, one)
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._save()

    def set(self, settings: StandbySettings) -> None:
        self._settings = settings
        self._wake.set()

    def allow(self, allowances: Mapping[str, int]) -> None:
        """How many an organization's starts may claim; those that are not named have no limit."""
        self._allowances = allowances
        self._wake.set()

    def views(self) -> list[StandbyView]:
        """What there is of each pool that is in use, and why."""
        return [
            pool.view(self._planner.history(name), _now()) for name, pool in self._pools.items()
        ]

    @property
    def settings(self) -> StandbySettings:
        return self._settings

    @property
    def memory_bytes(self) -> int:
        """What all of them take now."""
        return sum(pool.memory_bytes for pool in self._pools.values())

    def take(self, warm: Warm | None, gpus: Sequence[int]) -> StandbyProcess | None:
        """A standby that may become this replica; the caller has it `become`, or drops it."""
        if warm is None or (pool := self._pools.get(name_of(warm, gpus))) is None:
            return None
        return pool.take() if pool.warm == warm else None

    def drop(self, standby: StandbyProcess) -> None:
        """It did not become a replica: end it."""
        self._do(standby.end())

    def started(
        self, warm: Warm | None, gpus: Sequence[int], organization: str, *, hit: bool
    ) -> None:
        """A replica starts; `hit` = from a standby."""
        if warm is None:
            return
        name = name_of(warm, gpus)
        pool = self._pools.setdefault(name, Pool(warm, tuple(gpus)))
        if pool.warm != warm:  # our own files are of another version, or the host's variables
            self._end_all(pool, "replicas are born differently now")
            pool.warm = warm
        self._planner.started(name, _now(), hit=hit, organization=organization)
        self._wake.set()

    def give_way(self, free_bytes: int, busy_gpus: Iterable[int]) -> None:
        """Keep to the memory that replicas leave, and off their GPUs."""
        self._free_bytes, self._busy_gpus = free_bytes, frozenset(busy_gpus)
        for pool in self._pools.values():
            if self._busy_gpus.intersection(pool.gpus):
                self._end_all(pool, "its GPU is a replica's")
        while self.memory_bytes > free_bytes:
            pool = max(self._pools.values(), key=lambda each: each.memory_bytes)
            self._end_all(pool, "replicas need the memory", most=1)
        self._wake.set()

    async def _plan_for_ever(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._wake.wait()
            self._wake.clear()
            starting, before = self._starting(), self._was_starting
            self._was_starting = starting
            if starting or before:
                self._calm_at = _now() + self._settings.calm_s
            try:
                self._carry_out(self._plan(), _now())
            except Exception:  # a bug here must not cost the replicas anything
                log.exception("standbys could not be planned")
            if _now() - self._saved_at >= SAVE_S:
                self._save()

    def _pause_s(self) -> float | None:
        """Until the next plan, if nothing wakes us; None = for ever."""
        pools = self._pools.values()
        due = [
            max(SHORTEST_S, self._calm_at - _now(), pool.retry_at - _now())
            for pool in pools
            if pool.plan is not None and pool.plan.make
        ]
        lives = any(pool.count for pool in pools)
        return min([*due, PLAN_S] if lives else due, default=None)

    def _plan(self) -> dict[str, TypePlan]:
        usable = {
            name: pool
            for name, pool in self._pools.items()
            if not self._busy_gpus.intersection(pool.gpus)
        }
        stocks = {name: pool.stock() for name, pool in usable.items()}
        policy = self._settings.policy(self._machine_bytes, self._free_bytes, usable)
        plans = self._planner.plan(stocks, policy, _now(), self._allowances)
        return {name: plan for name, plan in plans.items() if name in usable}

    def _carry_out(self, plans: Mapping[str, TypePlan], now: float) -> None:
        for name, pool in list(self._pools.items()):
            pool.plan = plans.get(name)
            if pool.plan is None:
                continue
            for standby in pool.plan.give_back:
                self._end(pool, standby)
            if now >= max(self._calm_at, pool.retry_at):
                for _ in range(pool.plan.make):
                    self._make(name, pool)
        views = self.views()
        if views != self._shown:
            self._shown = views
            self._changed()

    def _make(self, name: str, pool: Pool) -> None:
        standby = self._new_id()
        pool.making[standby] = asyncio.create_task(self._see_through(name, pool, standby))

    async def _see_through(self, name: str, pool: Pool, standby: str) -> None:
        """From its birth until it is warm; whatever ends it before makes the pool pause."""
        began = _now()
        process: StandbyProcess | None = None
        try:
            process = await StandbyProcess.start(
                standby, pool.warm, pool.gpus, self._records, self._cgroups, self._walls
            )
            async with asyncio.timeout(self._settings.start_limit_s):
                await process.until_warm()
        except (DeployError, OSError, ValueError, TimeoutError) as error:
            log.warning("a standby of %s: %s", name, str(error) or "it was not warm in time")
            pool.failed(_now())
            if process is not None:
                self.drop(process)
        except asyncio.CancelledError:
            if process is not None:
                await process.end()
            raise
        else:
            pool.size_bytes = process.used_bytes()
            pool.backoff = Backoff()
            self._planner.refilled(name, _now() - began)
            pool.ready[standby] = process
            process.watch = self._do(self._bury(pool, process))
        finally:
            pool.making.pop(standby, None)
            if process is None:
                await foreign_folder.aside_for_long(self._records.end_standby, standby)
            self._wake.set()

    async def _bury(self, pool: Pool, process: StandbyProcess) -> None:
        """Notice that one has died while it waited."""
        await process.process.wait()
        if pool.ready.pop(process.id, None) is not None:
            log.warning("standby %s ended by itself: %s", process.id, process.last_words())
            pool.failed(_now())
            await process.end()
            self._wake.set()

    def _end_all(self, pool: Pool, why: str, most: int | None = None) -> None:
        for standby in [*pool.making, *pool.ready][:most]:
            log.info("standby %s ends: %s", standby, why)
            self._end(pool, standby)

    def _end(self, pool: Pool, standby: str) -> None:
        if (making := pool.making.pop(standby, None)) is not None:
            making.cancel()
            self._do(_ended(making))
        elif (process := pool.ready.pop(standby, None)) is not None:
            self._do(process.end())

    def _recall(self) -> None:
        """Pools and starts that the last engine knew; none of them where that cannot be read."""
        try:
            kept = json.loads(self._records.standbys_file.read_text())
            self._planner = StandbyPlanner(_now(), kept["memory"])
            for pool in kept["pools"]:
                lists = {
                    name: tuple(pool["warm"][name])
                    for name in ("argv", "reads", "writes", "layers")
                }
                warm = Warm(**pool["warm"] | lists)
                if Path(warm.argv[0]).exists():  # its environment has not been removed
                    known = Pool(warm, tuple(pool["gpus"]))
                    self._pools[known.name] = known
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError, MemoryInvalid) as error:
            log.warning("what was learnt of standbys cannot be read and is begun anew: %s", error)

    def _save(self) -> None:
        self._saved_at = _now()
        for name, pool in list(self._pools.items()):
            if not pool.count and self._planner.history(name).idle_s(_now()) >= HISTORY_S:
                del self._pools[name]
        kept = {
            "pools": [
                {"warm": asdict(pool.warm), "gpus": pool.gpus} for pool in self._pools.values()
            ],
            "memory": self._planner.memory(_now()),
        }
        with suppress(OSError):  # a full disk: it is only learnt
            self._records.save_standbys(kept)

    def _new_id(self) -> str:
        ending = "".join(self._rng.choices(string.ascii_lowercase + string.digits, k=8))
        return f"standby-{ending}"

    def _do(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])


def _now() -> float:
    return asyncio.get_running_loop().time()
