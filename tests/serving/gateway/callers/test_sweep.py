"""Ten thousand callers are looked after in parts."""

from __future__ import annotations

import asyncio

from hotplate.serving.gateway.callers.sweep import PARTS, Sweep
from tests.support.patience import until


class Idle:
    """A caller that counts how often it was looked after."""

    def __init__(self, times: list[float]) -> None:
        self.times = times

    def sweep(self, now: float) -> None:
        self.times.append(now)


async def test_everybody_is_looked_after_once_a_round_and_few_at_a_time() -> None:
    times: list[list[float]] = [[] for _ in range(3200)]
    gone = Idle([])
    callers = {gone, *map(Idle, times)}
    rounds = Sweep(callers, lambda: 0.32)
    rounds.watch()
    await asyncio.sleep(0)
    callers.discard(gone)
    await until(lambda: all(len(each) >= 2 for each in times))
    rounds.stop()
    assert not gone.times, "it left before its turn"
    firsts = [each[0] for each in times]
    assert len(set(firsts)) >= PARTS
    assert all(each[1] - each[0] > 0.2 for each in times)
    assert max(firsts.count(first) for first in set(firsts)) <= 3200 // PARTS
