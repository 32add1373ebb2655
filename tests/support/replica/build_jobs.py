"""Builds without a cluster: a test ends each as it likes, and publishes what an agent would."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.volumes.ticket import Ticket, opened
from hotplate.deploy.cluster.builds.spec import BuildEnd, BuildJobs, BuildOutcome, JobBuild

DONE = BuildOutcome(BuildEnd.DONE, log=("built",), took_s=1.5)
MANIFEST = "cd" * 32


class BuildsInMemory(BuildJobs):
    """One at a time of each digest."""

    def __init__(self, blobs: BlobStore, key: bytes, logs: Path) -> None:
        self._blobs, self._key, self._logs = blobs, key, logs
        self.begun: list[JobBuild] = []
        self.tell: Callable[[str], None] = lambda waits_for: None
        self._running: dict[str, asyncio.Future[BuildOutcome]] = {}

    def log(self, digest: str) -> Path:
        return self._logs / f"{digest}.log"

    async def build(self, wanted: JobBuild, tell: Callable[[str], None]) -> BuildOutcome:
        assert wanted.digest not in self._running
        self.begun.append(wanted)
        self.tell = tell
        self.log(wanted.digest).write_text("it builds\n")
        running: asyncio.Future[BuildOutcome] = asyncio.get_running_loop().create_future()
        self._running[wanted.digest] = running
        try:
            return await running
        finally:
            del self._running[wanted.digest]

    def ticket(self) -> Ticket:
        """Of the build that was begun last."""
        return opened(self.begun[-1].ticket, self._key)

    def publish(self) -> None:
        """As the agent does."""
        ticket = self.ticket()
        self._blobs.put_note(ticket.note, {**ticket.about, "manifest": MANIFEST})

    def end(self, outcome: BuildOutcome = DONE) -> None:
        self._running[self.begun[-1].digest].set_result(outcome)
