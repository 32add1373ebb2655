"""Fetching: threads that read chunks into place and verify them there.

Bytes go from the source straight into the destination's memory and are hashed on the same
thread, so they never become Python objects. Reports are called on these threads.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from hotplate.cache.chunks import Chunks
from hotplate.cache.errors import CacheError, ChunkCorrupt
from hotplate.cache.manifest import Content, Draft, chunk_digest
from hotplate.cache.metrics import Metrics
from hotplate.cache.origin import Source
from hotplate.cache.traffic import Traffic


class Destination(Protocol):
    """Where a blob's bytes are put."""

    @property
    def view(self) -> memoryview:
        """The whole of it, writable."""

    def reserve(self, offset: int, length: int) -> None:
        """Makes room for that part before it is written. Raises NoSpace."""


class LocalCopy(Protocol):
    """A copy on this node, some or all of whose chunks are right."""

    def take(self, index: int, destination: Destination) -> bool:
        """Puts a chunk in its place and verifies it; False where this copy has it not.

        Raises CacheError where that could not be told.
        """


@dataclass(eq=False)
class Fetch:
    """One file's content on its way into `destination`."""

    content: Content
    origin: Source
    chunks: Chunks
    destination: Destination
    on_verified: Callable[[int], None]
    on_failed: Callable[[CacheError], None]
    urgent: bool = False
    """Files that hold up a whole tree go before those that are usable while they arrive."""
    local: LocalCopy | None = None
    traffic: Traffic = field(default_factory=Traffic)
    arrival: int = field(default=0, init=False)

    @property
    def rank(self) -> tuple[bool, int]:
        return (not self.urgent, self.arrival)


class Fetcher:
    """Runs fetches on a few threads: chunks that readers wait for first, then in file order."""

    def __init__(self, threads: int, clock: Callable[[], float], metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._fetches: list[Fetch] = []
        self._arrivals = 0
        self._work = threading.Condition()
        self._closed = False
        for number in range(threads):
            threading.Thread(target=self._run, name=f"fetch-{number}", daemon=True).start()

    def start(self, fetch: Fetch) -> None:
        with self._work:
            self._arrivals += 1
            fetch.arrival = self._arrivals
            bisect.insort(self._fetches, fetch, key=lambda one: one.rank)
            self._work.notify_all()

    def want(self, fetch: Fetch, indices: Iterable[int]) -> None:
        with self._work:
            fetch.chunks.want(indices)
            self._work.notify_all()

    def take_whole(self, fetch: Fetch) -> None:
        """From now on brings all of it, not only what readers want."""
        with self._work:
            fetch.chunks.whole = True
            self._work.notify_all()

    def cancel(self, fetch: Fetch) -> None:
        """Takes no further chunk of it and reports nothing more."""
        with self._work:
            self._drop(fetch)

    def stalls_at(self, fetch: Fetch) -> float | None:
        with self._work:
            return fetch.chunks.stalls_at()

    def stalled(self, fetch: Fetch) -> CacheError | None:
        """Ends the fetch and returns its error when nothing has arrived for too long."""
        with self._work:
            error = fetch.chunks.stalled(self._clock())
            if error is not None:
                self._drop(fetch)
            return error

    def close(self) -> None:
        with self._work:
            self._closed = True
            self._fetches.clear()
            self._work.notify_all()

    def _drop(self, fetch: Fetch) -> None:
        if fetch in self._fetches:
            self._fetches.remove(fetch)

    def _run(self) -> None:
        while (taken := self._take()) is not None:
            fetch, index = taken
            try:
                self._bring(fetch, index)
            except CacheError as error:
                self._report_failure(fetch, index, error)
            except Exception as error:  # a thread that dies would leave readers hanging
                self._report_failure(fetch, index, CacheError(f"{fetch.chunks.name}: {error!r}"))
            else:
                self._report_success(fetch, index)
            del fetch, taken  # an idle thread keeps nobody's memory alive

    def _take(self) -> tuple[Fetch, int] | None:
        with self._work:
            while not self._closed:
                now = self._clock()
                for wanted_only in (True, False):
                    for fetch in self._fetches:
                        index = fetch.chunks.next(now, wanted_only)
                        if index is not None:
                            return fetch, index
                wakes = [at for one in self._fetches if (at := one.chunks.wakes_at()) is not None]
                self._work.wait(max(0.001, min(wakes) - now) if wakes else None)
            return None

    def _bring(self, fetch: Fetch, index: int) -> None:
        offset, length = fetch.content.span(index)
        fetch.destination.reserve(offset, length)
        if fetch.local is not None and fetch.local.take(index, fetch.destination):
            return
        with fetch.destination.view[offset : offset + length] as part:
            fetch.origin.read_into(offset, part)
            self._count(fetch, length)
            digest = chunk_digest(part)
        if isinstance(fetch.content, Draft):
            fetch.content.chunks[index] = digest
        elif digest != fetch.content.chunks[index]:
            raise ChunkCorrupt(f"{fetch.chunks.name}: chunk {index} has another digest")

    def _count(self, fetch: Fetch, body_bytes: int) -> None:
        self._metrics.origin_bytes.inc(body_bytes)
        fetch.traffic.add(origin_bytes=body_bytes)

    def _report_success(self, fetch: Fetch, index: int) -> None:
        self._metrics.chunks.labels("verified").inc()
        with self._work:
            if fetch not in self._fetches:
                return
            fetch.chunks.verified(index, self._clock())
            if fetch.chunks.complete:
                self._drop(fetch)
            fetch.on_verified(index)

    def _report_failure(self, fetch: Fetch, index: int, error: CacheError) -> None:
        corrupt = isinstance(error, ChunkCorrupt)
        self._metrics.chunks.labels("corrupt" if corrupt else "failed").inc()
        self._count(fetch, error.body_bytes)
        with self._work:
            if fetch not in self._fetches:
                return
            final = fetch.chunks.failed(index, error, self._clock())
            if final is not None:
                self._drop(fetch)
                fetch.on_failed(final)
            self._work.notify_all()
