"""When a role that lives and does not answer is ended, in a time that leaps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from hotplate.platform.processes.role_watch import (
    ANSWER_S,
    ASKS,
    SILENT_S,
    START_S,
    Liveness,
    until_silent,
)


class LeapingLoop(asyncio.SelectorEventLoop):
    """Does not wait for its timers: the time is theirs."""

    now = 1000.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.now = max(self.now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def ended_after(ask: Callable[[float], Awaitable[bool]]) -> tuple[float, float]:
    """When the process was given up, and for how long it had been silent."""

    async def story() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        silent_s = await until_silent(lambda: ask(loop.time() - began))
        return loop.time() - began, silent_s

    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        return runner.run(story())


def answers_until(end_s: float, pause_s: float = 0.0) -> Callable[[float], Awaitable[bool]]:
    async def ask(now: float) -> bool:
        await asyncio.sleep(pause_s if now < end_s else ANSWER_S)
        return now < end_s

    return ask


def test_one_that_falls_silent_is_given_up_after_half_a_minute() -> None:
    after_s, silent_s = ended_after(answers_until(600.0))
    assert 600.0 + SILENT_S - ANSWER_S <= after_s <= 600.0 + SILENT_S + 15.0
    assert SILENT_S <= silent_s <= SILENT_S + 15.0


def test_one_that_is_slow_is_never_given_up() -> None:
    """It answers every question at the last moment for a day."""
    after_s, _ = ended_after(answers_until(86_400.0, ANSWER_S - 0.1))
    assert after_s > 86_400.0


def test_one_that_misses_some_questions_is_not_given_up() -> None:
    async def ask(now: float) -> bool:
        await asyncio.sleep(ANSWER_S)
        return now < 3600.0 and now % 25.0 < 10.0

    assert ended_after(ask)[0] > 3600.0


def test_one_that_starts_has_longer() -> None:
    after_s, silent_s = ended_after(answers_until(0.0))
    assert START_S <= after_s <= START_S + 15.0
    assert silent_s == after_s


def test_whoever_asks_may_have_slept() -> None:
    """`up` was stopped for an hour, and the first answer after it comes late."""
    heard = Liveness(0.0).after(answered=True, now=1.0)
    for _ in range(ASKS - 1):
        heard = heard.after(answered=False, now=3600.0)
        assert not heard.silent_s(3600.0)
    assert heard.after(answered=False, now=3601.0).silent_s(3601.0) == 3600.0
