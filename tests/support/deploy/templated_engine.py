"""A program that is an engine with a template, and is killed; for tests.

    python -m tests.support.deploy.templated_engine DIRECTORY FORKS [POINT]

It says "ready" once so many replicas were forked and serve; with a point it then begins another,
and kills itself as soon as that has come so far.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hotplate.deploy.engine import ReplicaState
from hotplate.deploy.local.records import Records
from hotplate.deploy.local.standby.channel import WarmChannel
from hotplate.deploy.sandbox.cgroups import Cgroup, Cgroups
from hotplate.deploy.sandbox.isolation import Isolation
from tests.support.deploy.fake_runtime import workload
from tests.support.deploy.running import states, until
from tests.support.deploy.templates import engine_of, forking, walled

POINTS: dict[str, tuple[type, str, bool]] = {
    "born": (Records, "note_birth", True),
    "scope": (Cgroups, "make", True),
    "walls": (Isolation, "nest", True),
    "fork": (WarmChannel, "sender", True),
    "group": (Cgroup, "enter", True),
    "job": (WarmChannel, "give", True),
    "no record": (Records, "save", False),
    "record": (Records, "save", True),
}
"""After, or before, which call it ends."""


async def main(directory: Path, forks: int, point: str) -> None:
    engine = engine_of(walled(directory), forking())
    await engine.start()
    await engine.scale(workload("a"), 1)
    await until(engine, states(ReplicaState.READY))
    while not any(view.templates for view in engine.standbys.views()):
        await engine.changed()
    await engine.scale(workload("b"), forks)
    await until(engine, states(*[ReplicaState.READY] * (1 + forks)))
    print("ready", flush=True)
    if point:
        die_at(*POINTS[point])
        await engine.scale(workload("b"), forks + 1)
    await asyncio.Event().wait()


def die_at(owner: type, name: str, after: bool) -> None:
    stock: Callable[..., Any] = getattr(owner, name)

    def dying(*arguments: Any, **named: Any) -> Any:
        if after:
            stock(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    async def dying_later(*arguments: Any, **named: Any) -> Any:
        await stock(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, dying_later if inspect.iscoroutinefunction(stock) else dying)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), "".join(sys.argv[3:])))
