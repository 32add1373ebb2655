"""What replicas and warm processes take of the memory, read as often as it costs next to nothing.

Forks share their pages, so when one comes or ends all others take less or more. All are read soon
after that, and else once a round. What the reading costs depends on what is mapped, so the pause
after it is a multiple of the CPU time that it took. Where nothing runs, nothing is read.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from hotplate.deploy.process.memory import Memory, memory_of

SETTLING_S = 0.5
"""Until one that is ready is read: its first requests go before, and others come meanwhile."""
CROWD_S = 2.0
"""The same at most while others start, which need the cores and change the figures again."""
CHANGING_SHARE = 0.1
"""Of one CPU, the most that it takes while replicas come and go."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MemoryWatchSettings:
    round_s: float = 10.0
    """Between two rounds, at the least."""
    share: float = 0.005
    """Of one CPU, the most that rounds take: 100 forks of 100 MiB are read every 30 s."""


class Measured(Protocol):
    """Some processes of which it is to be known."""

    memory: Memory | None
    """What they took when they were read last; None before."""

    def members(self) -> Collection[int]:
        """Their process ids now. Called in a thread."""


class MemoryWatch:
    """Of one engine, on its event loop."""

    def __init__(
        self,
        measured: Callable[[], Sequence[Measured]],
        noted: Callable[[], None],
        settings: MemoryWatchSettings,
        starting: Callable[[], bool],
    ) -> None:
        """`measured` are those that run now; `noted` is called when they have been read; `starting`
        says whether any is on its way."""
        self._measured = measured
        self._noted = noted
        self._settings = settings
        self._starting = starting
        self._wake = asyncio.Event()

    def look(self) -> None:
        """There may be some that have not been read."""
        self._wake.set()

    async def run(self) -> None:
        """For ever."""
        loop = asyncio.get_running_loop()
        read: Sequence[Measured] = ()
        next_round = loop.time()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(next_round if read else None):
                    while self._measured() == read:
                        await self._wake.wait()
                        self._wake.clear()
                    await self._settle()
            before, read = read, list(self._measured())
            cost_s = await self._read(read)
            pause = pause_s(cost_s, self._settings.share, self._settings.round_s)
            next_round = loop.time() + pause
            if read != before:
                await asyncio.sleep(pause_s(cost_s, CHANGING_SHARE, 0.0))

    async def _settle(self) -> None:
        await asyncio.sleep(SETTLING_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(CROWD_S - SETTLING_S):
                while self._starting():
                    await self._wake.wait()
                    self._wake.clear()

    async def _read(self, measured: Sequence[Measured]) -> float:
        """What it took of a CPU, in seconds."""
        if not measured:
            return 0.0
        found, cost_s = await asyncio.to_thread(_memory_of_each, measured)
        for each, memory in zip(measured, found, strict=True):
            each.memory = memory
        try:
            self._noted()
        except Exception:  # a bug there must not end the loop
            log.exception("what was read of the memory could not be noted")
        return cost_s


def pause_s(cost_s: float, share: float, least_s: float) -> float:
    """After what has cost so much CPU time, until the next may take no more than its share."""
    return max(least_s, cost_s / share)


def _memory_of_each(measured: Iterable[Measured]) -> tuple[list[Memory], float]:
    began = time.thread_time()
    found = [memory_of(each.members()) for each in measured]
    return found, time.thread_time() - began
