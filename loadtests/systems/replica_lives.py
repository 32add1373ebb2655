"""How long replicas of this machine lived, as their processes show it; nobody of ours is asked.

A life begins when the replica is wanted, which its record on disk says beside its process, and
ends with that process, which the kernel says. One that is killed and starts again lives twice.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOOK_S = 0.1
"""How soon a process is found. One that lives shorter is not."""


@dataclass
class Life:
    """Unix seconds."""

    deployment: str
    gpus: float
    began_at: float
    ready_at: float | None = None
    ended_at: float | None = None

    def lived_s(self, until: float) -> float:
        """Until it ended, or `until`."""
        return max(0.0, min(self.ended_at or until, until) - self.began_at)

    def started_s(self, until: float) -> float:
        """How much of that it was starting."""
        ready_at = until if self.ready_at is None else self.ready_at
        return min(ready_at - self.began_at, self.lived_s(until))


class ReplicaLives:
    """Of one platform's replicas, of which `data` is the directory. For the event loop's thread."""

    def __init__(self, data: Path) -> None:
        self._folder = data / "engine" / "replicas"
        self._lives: dict[tuple[int, str], Life] = {}
        """By process: its id, and when it began."""

    def of(self, deployment: str) -> list[Life]:
        return [life for life in self._lives.values() if life.deployment == deployment]

    def look(self) -> None:
        """At all processes that there are now."""
        for path in self._folder.glob("*/state.json"):
            with suppress(OSError, ValueError):  # it is written or removed meanwhile
                self._look_at(path.parent.name, json.loads(path.read_bytes()))

    def _look_at(self, replica: str, record: dict[str, Any]) -> None:
        start_time = record["start_time"].partition("@")[0]  # and of which boot
        process = int(record["pid"]), start_time
        if process not in self._lives:
            ended = os.pidfd_open(process[0])
            if not _is_there(*process):
                os.close(ended)
                return
            self._lives[process] = Life(
                re.sub(r"-\d+-.*", "", replica),
                float(record["workload"]["resources"]["gpus"]),
                record["phases"][0]["start"],
            )
            asyncio.get_running_loop().add_reader(ended, self._end, ended, self._lives[process])
        self._lives[process].ready_at = record["ready_at"]

    def _end(self, ended: int, life: Life) -> None:
        life.ended_at = time.time()
        asyncio.get_running_loop().remove_reader(ended)
        os.close(ended)


@asynccontextmanager
async def watched_lives(data: Path) -> AsyncIterator[ReplicaLives]:
    """Looks while the block runs."""
    lives = ReplicaLives(data)

    async def look() -> None:
        while True:
            lives.look()
            await asyncio.sleep(LOOK_S)

    looking = asyncio.create_task(look())
    try:
        yield lives
        if looking.done():
            looking.result()
    finally:
        looking.cancel()
        await asyncio.wait([looking])


def _is_there(pid: int, start_time: str) -> bool:
    """Whether that very process runs."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in ("Z", "X") and fields[19] == start_time
