"""An engine that runs for a test, and what is seen of its replicas and their processes."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from hotplate.deploy.engine import Engine, Replica, ReplicaState
from hotplate.deploy.local.engine import LocalEngine
from tests.support.patience import PATIENCE_S


@asynccontextmanager
async def started(engine: LocalEngine) -> AsyncIterator[LocalEngine]:
    """The engine while it runs; its replicas end with it."""
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop_all()
        await engine.close()


async def until(
    engine: Engine, condition: Callable[[Sequence[Replica]], bool], timeout_s: float = PATIENCE_S
) -> Sequence[Replica]:
    """The replicas, as soon as `condition` holds for them."""
    try:
        async with asyncio.timeout(timeout_s):
            while not condition(engine.replicas()):
                await engine.changed()
    except TimeoutError:
        shown = "; ".join(f"{each.state}: {each.reason}" for each in engine.replicas())
        raise AssertionError(f"after {timeout_s:g} s still {shown}") from None
    return engine.replicas()


def states(*wanted: ReplicaState) -> Callable[[Sequence[Replica]], bool]:
    """Whether the replicas have exactly these states, in any order."""
    return lambda replicas: sorted(each.state for each in replicas) == sorted(wanted)


def pid_of(directory: Path, replica: str) -> int:
    pid = json.loads((directory / "replicas" / replica / "state.json").read_text())["pid"]
    assert isinstance(pid, int)
    return pid


def outside(inside: Collection[int], beside: int) -> list[int]:
    """What these process ids, of the namespace of the process `beside`, are here."""
    namespace = os.stat(f"/proc/{beside}/ns/pid")
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if os.path.samestat(os.stat(status.with_name("ns") / "pid"), namespace):
                numbers = status.read_text().partition("NSpid:")[2].splitlines()[0].split()
                found += [int(numbers[0])] if int(numbers[-1]) in inside else []
        except OSError:
            continue
    return found


def runs(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def zombies() -> list[int]:
    """Children of this process that nobody has reaped."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = stat.read_text().partition(" ")
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, parent = rest.rpartition(")")[2].split()[:2]
        if state == "Z" and int(parent) == os.getpid():
            found.append(int(pid))
    return found
