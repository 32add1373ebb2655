"""How many replicas a deployment has, and how many of them are ready, again and again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.support.end_to_end.any_platform import AnyPlatform

LOOK_S = 0.05


@dataclass
class ReplicaWatch:
    """What was seen, one look after another, but for looks that saw what the one before saw."""

    seen: list[Sequence[tuple[int, str]]] = field(default_factory=list)
    """Revision and state of each replica."""

    @property
    def most(self) -> int:
        """Replicas at once, draining ones too."""
        return max(map(len, self.seen))

    @property
    def fewest_ready(self) -> int:
        return min(sum(state == "ready" for _, state in there) for there in self.seen)


@asynccontextmanager
async def watched(platform: AnyPlatform, name: str) -> AsyncIterator[ReplicaWatch]:
    """Looks at the deployment while the block runs."""
    watch = ReplicaWatch()

    async def look() -> None:
        while True:
            replicas = await platform.replicas(name)
            there = [(each["revision"], each["state"]) for each in replicas]
            if not watch.seen or watch.seen[-1] != there:
                watch.seen.append(there)
            await asyncio.sleep(LOOK_S)

    looking = asyncio.create_task(look())
    try:
        yield watch
        if looking.done():
            looking.result()
    finally:
        looking.cancel()
        await asyncio.wait([looking])
