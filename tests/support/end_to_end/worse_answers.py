"""A bento that fails half of its answers, and how soon after its 20th one it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from hotplate.platform.controller.rollouts.comparison import LEAST_ANSWERS
from tests.support.patience import until
from tests.support.services.bentos import KITCHEN
from tests.support.services.calling import Load

STOPPED_S = 10.0
FAILING = KITCHEN.replace('VERSION = "v1"', 'VERSION = "v2"').replace(
    "        with self.counted() as about:\n            await asyncio.sleep(seconds)",
    "        self.most += 1\n"
    "        if self.most % 2:\n"
    "            raise RuntimeError('every other one')\n"
    "        with self.counted() as about:\n            await asyncio.sleep(seconds)",
)
"""The kitchen, whose `cook` fails every other time, and says `v2` otherwise."""


def answers_of(load: Load) -> int:
    """Those of the bento, where nothing else fails and no other one says `v2`."""
    return len([each for each in load.answers if each["version"] == "v2"]) + len(load.failures)


async def stopped_after_s(load: Load, stopped: Callable[[], Awaitable[bool]]) -> float:
    """How long after its 20th answer it was stopped."""
    now = asyncio.get_running_loop().time
    await until(lambda: answers_of(load) >= LEAST_ANSWERS)
    began = now()
    await until(stopped)
    return now() - began
