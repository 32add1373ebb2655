"""Whether a process of the platform still answers: asked every few seconds, ended when it is not.

A process that hangs or was stopped has not died, so the kernel reports nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

ASK_EVERY_S = 5.0
ANSWER_S = 5.0
"""How long one answer may take: far more than a busy role needs, as each answers its health check
from a loop that does nothing long."""
SILENT_S = 30.0
"""A process that has answered nothing for this long is ended, and started again."""
START_S = 60.0
"""The same for one that has never answered."""
ASKS = 4
"""This many questions in a row have to be without an answer: the asking side may have slept."""


@dataclass(frozen=True)
class Liveness:
    """How one process has answered so far, in loop seconds."""

    since: float
    """When it has answered last, or began."""
    answered: bool = False
    unanswered: int = 0

    def after(self, answered: bool, now: float) -> Liveness:
        """After one more question."""
        if answered:
            return Liveness(now, answered=True)
        return replace(self, unanswered=self.unanswered + 1)

    def silent_s(self, now: float) -> float:
        """For how long it has been silent; 0 while that is not too long."""
        limit_s = SILENT_S if self.answered else START_S
        silent_s = now - self.since
        return silent_s if self.unanswered >= ASKS and silent_s >= limit_s else 0.0


async def until_silent(ask: Callable[[], Awaitable[bool]]) -> float:
    """Returns when the process that `ask` asks has been silent for too long: for how many s."""
    now = asyncio.get_running_loop().time
    liveness = Liveness(now())
    while True:
        liveness = liveness.after(await ask(), now())
        if silent_s := liveness.silent_s(now()):
            return silent_s
        await asyncio.sleep(ASK_EVERY_S)
