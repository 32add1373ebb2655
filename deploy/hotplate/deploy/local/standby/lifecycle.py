"""The lives of standbys: made, warm, waiting, ended.

A pool's `making` holds those on their way to be warm, its `ready` those that wait for a replica.
"""

from __future__ import annotations

import asyncio
import logging
import random
import string
from collections.abc import Callable

from hotplate.deploy.errors import DeployError, TemplateUnforkable, WarmProcessUnusable
from hotplate.deploy.local.host import ProcessHost
from hotplate.deploy.local.standby.pool import StandbyPool
from hotplate.deploy.local.standby.process import StandbyProcess
from hotplate.deploy.local.standby.template import TemplateProcess
from hotplate.deploy.local.standby.warm_process import WarmProcess
from hotplate.deploy.process.backoff import Backoff
from hotplate.machine import foreign_folder
from hotplate.machine.background import BackgroundTasks, until_done

log = logging.getLogger(__name__)


class StandbyLives:
    """Those of one machine."""

    def __init__(self, host: ProcessHost, rng: random.Random, changed: Callable[[], None]) -> None:
        """`changed` is called, on the loop, when one has become warm, has failed or has died."""
        self._host = host
        self._rng = rng
        self._changed = changed
        self._tasks = BackgroundTasks()
        self._families: dict[TemplateProcess, asyncio.Task[None]] = {}
        """Ended templates; each task waits for what one has forked."""

    def make(
        self, pool: StandbyPool, limit_s: float, refilled: Callable[[float], None]
    ) -> asyncio.Task[None]:
        """Begin one, which has failed when it is not warm after `limit_s`; `refilled` is told
        after how many seconds it was."""
        ending = "".join(self._rng.choices(string.ascii_lowercase + string.digits, k=8))
        standby = f"standby-{ending}"
        making = asyncio.create_task(self._see_through(pool, standby, limit_s, refilled))
        pool.making[standby] = making
        return making

    def end(self, pool: StandbyPool, standby: str) -> None:
        if (making := pool.making.pop(standby, None)) is not None:
            making.cancel()
            self._tasks.start(_ended(making))
        elif (process := pool.ready.pop(standby, None)) is not None:
            self.drop(process)

    def end_all(self, pool: StandbyPool, why: str, most: int | None = None) -> None:
        """End them, those first that are not warm yet; `most` of them."""
        for standby in [*pool.making, *pool.ready][:most]:
            log.info("standby %s ends: %s", standby, why)
            self.end(pool, standby)

    def drop(self, standby: WarmProcess) -> None:
        """End one that is in no pool and has not become a replica."""
        self._tasks.start(self._end(standby))

    async def finish(self) -> None:
        """Return when all that were ended are gone; what templates have forked goes on."""
        await self._tasks.finish()
        for template, waiting in self._families.items():
            if template.has_forks:
                waiting.cancel()
        await asyncio.gather(*self._families.values(), return_exceptions=True)

    async def _end(self, standby: WarmProcess) -> None:
        await standby.end()
        if isinstance(standby, TemplateProcess):
            if standby.has_forks:
                waiting = self._families[standby] = asyncio.create_task(standby.gone())
                waiting.add_done_callback(lambda _: self._families.pop(standby))
            else:
                await standby.gone()

    async def _see_through(
        self,
        pool: StandbyPool,
        standby: str,
        limit_s: float,
        refilled: Callable[[float], None],
    ) -> None:
        """From its birth until it is warm; whatever ends it before makes the pool pause."""
        began = _now()
        process: WarmProcess | None = None
        try:
            process = await self._start(pool, standby)
            async with asyncio.timeout(limit_s):
                await process.until_warm()
            memory = await process.measure()
        except TemplateUnforkable as error:
            log.warning("%s has standbys in place of a template: %s", pool.name, error)
            pool.found_unforkable = str(error)
            assert process is not None
            self.drop(process)
        except WarmProcessUnusable as error:
            log.warning("%s has no warm processes: %s", pool.name, error)
            pool.found_unusable = str(error)
            assert process is not None
            self.drop(process)
        except (DeployError, OSError, ValueError, TimeoutError) as error:
            reason = str(error) or "it was not warm in time"
            log.warning("a standby of %s: %s", pool.name, reason)
            pool.failed(_now())
            if process is not None:
                self.drop(process)
        except asyncio.CancelledError:
            if process is not None:
                await until_done(self._end(process))
            raise
        else:
            pool.size_bytes = memory.own_bytes
            pool.backoff = Backoff()
            refilled(_now() - began)
            pool.ready[standby] = process
            process.watch = self._tasks.start(self._bury(pool, process))
        finally:
            pool.making.pop(standby, None)
            if process is None:
                end = foreign_folder.aside_for_long(self._host.records.end_standby, standby)
                await until_done(end)
            self._changed()

    async def _start(self, pool: StandbyPool, standby: str) -> WarmProcess:
        if pool.unforkable:
            return await StandbyProcess.start(standby, pool.warm, pool.gpus, self._host)
        return await TemplateProcess.start(standby, pool.warm, self._host)

    async def _bury(self, pool: StandbyPool, process: WarmProcess) -> None:
        """Notice that one has died while it waited."""
        await process.process.wait()
        if pool.ready.pop(process.id, None) is not None:
            log.warning("standby %s ended by itself: %s", process.id, process.last_words())
            pool.failed(_now())
            await self._end(process)
            self._changed()


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])


def _now() -> float:
    return asyncio.get_running_loop().time()
