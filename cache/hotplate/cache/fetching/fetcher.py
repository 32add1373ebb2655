"""Fetching: threads that read chunks into place and verify them there.

Bytes go from the source straight into memory of the destination's and are hashed on the same
thread, so they never become Python objects. `Contents` says which chunk comes next, and from where.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from hotplate.cache.errors import CacheError, ChunkCorrupt
from hotplate.cache.fetching.contents import Contents
from hotplate.cache.fetching.corroboration import Corroboration
from hotplate.cache.fetching.fetch import Fetch
from hotplate.cache.manifest import Draft, chunk_digest
from hotplate.cache.metrics import Metrics
from hotplate.cache.origins.blob_source import OnProgress
from hotplate.cache.swarm.assignment import HERE, ORIGIN, Assignment, Missed
from hotplate.cache.swarm.chunk_request import ChunkRequest, ChunkResponse, Peers, PendingResponse
from hotplate.cache.swarm.download_slots import SPARE_SMALL, TRANSFERS, WAITS

_NOTE_SHARE = 0.1
"""How often bytes on their way are noted, as a share of the time that a fetch survives without
any."""


@dataclass(frozen=True)
class _Pending:
    """A chunk that a peer was asked for."""

    fetch: Fetch
    step: Assignment
    part: memoryview
    known: str
    """Its digest; "" where that is not known."""
    response: PendingResponse | None
    """None: the peer is gone."""


class Fetcher:
    """Brings what is in `Contents`, on a few threads, until that is closed."""

    def __init__(
        self,
        threads: int,
        contents: Contents,
        clock: Callable[[], float],
        metrics: Metrics,
        peers: Peers | None = None,
    ) -> None:
        """`threads` is how many chunks may come from the origin at once; `peers` is None where
        there are none."""
        self._contents = contents
        self._clock = clock
        self._metrics = metrics
        self._peers = peers
        self._corroboration = Corroboration(contents, clock, metrics, peers)
        more = TRANSFERS + WAITS if peers is not None else 0
        for number in range(threads + SPARE_SMALL + more):
            threading.Thread(target=self._run, name=f"fetch-{number}", daemon=True).start()

    def _run(self) -> None:
        while (taken := self._contents.next_step()) is not None:
            fetch, step = taken
            pending = None
            with self._failing(fetch, step):
                if step.source in (HERE, ORIGIN):
                    self._bring(fetch, step)
                else:
                    pending = self._ask(fetch, step)
            del fetch, taken  # so that an idle thread keeps no memory alive
            while pending is not None:
                pending = self._receive(pending)

    @contextlib.contextmanager
    def _failing(self, fetch: Fetch, step: Assignment) -> Iterator[None]:
        try:
            yield
        except CacheError as error:
            self._failed(fetch, step, error)
        except Exception as error:  # a thread that dies would leave readers hanging
            self._failed(fetch, step, CacheError(f"{fetch.chunks.name}: {error!r}"))

    def _bring(self, fetch: Fetch, step: Assignment) -> None:
        """Brings a chunk from the origin, or from this node's disk.

        Raises CacheError when the origin does not give it, or there is no room for it.
        """
        offset, length = fetch.content.span(step.index)
        if step.source == HERE:
            fetch.destination.reserve(offset, length)
            self._bring_local(fetch, step)
            return
        with fetch.destination.part(offset, length) as part:
            with self._request(fetch, step):
                fetch.destination.reserve(offset, length)
                fetch.order.origin.read_into(offset, part, self._progress(fetch, step.index))
            self._count(fetch, length)
            digest = chunk_digest(part)
            if isinstance(fetch.content, Draft):
                progress = self._progress(fetch, step.index)
                self._corroboration.resolve(fetch, step.index, digest, progress)
                fetch.content.chunks[step.index] = digest
            elif digest != fetch.content.chunks[step.index]:
                raise ChunkCorrupt(f"{fetch.chunks.name}: chunk {step.index} has another digest")
            fetch.destination.put(offset, part)
        self._verified(fetch, step)

    @contextlib.contextmanager
    def _request(self, fetch: Fetch, step: Assignment) -> Iterator[None]:
        """For the time of a request to the origin. After it the next request goes out at once, on
        another thread: no connection waits until the chunk that came over it is verified."""
        try:
            yield
        finally:
            self._contents.request_ended(fetch, step)

    def _progress(self, fetch: Fetch, index: int) -> OnProgress:
        """A callback that notes a chunk's bytes while they come, often enough that the fetch does
        not count as stalled."""
        noted_at = self._clock()

        def on_progress(got_bytes: int) -> None:
            nonlocal noted_at
            now = self._clock()
            if now - noted_at >= fetch.chunks.stall_s * _NOTE_SHARE:
                noted_at = now
                fetch.progressed(index, got_bytes, now)

        return on_progress

    def _bring_local(self, fetch: Fetch, step: Assignment) -> None:
        assert fetch.order.local is not None
        if fetch.order.local.take(step.index, fetch.destination):
            self._verified(fetch, step)
            return
        self._metrics.count_chunk("disk", "corrupt")
        fetch.damaged(step)

    def _ask(self, fetch: Fetch, step: Assignment) -> _Pending | None:
        """Sends a peer the request; None where it could not be sent."""
        assert self._peers is not None
        known = fetch.content.chunks[step.index]
        with self._failing(fetch, step):
            part = fetch.destination.part(*fetch.content.span(step.index))
            have = fetch.chunks.verified_bits
            request = ChunkRequest(fetch.key, step.index, known, step.urgent, self._peers.me, have)
            response = self._peers.ask(step.source, request)
            return _Pending(fetch, step, part, known, response)
        self._contents.request_ended(fetch, step)
        return None

    def _receive(self, pending: _Pending) -> _Pending | None:
        """Takes a peer's response, and asks for the next chunk before this one is verified: no
        connection waits for that, and no other thread is woken. Returns the next request."""
        fetch, step, response = pending.fetch, pending.step, None
        with self._failing(fetch, step):
            response = self._read(pending)
        if response is not None and response.missed is None:
            after = self._ask_next(fetch, step)
            with self._failing(fetch, step):
                self._verify(pending, response)
            return after
        if response is not None:
            self._missed(fetch, step, response)
        self._contents.request_ended(fetch, step)
        return None

    def _read(self, pending: _Pending) -> ChunkResponse:
        """Raises CacheError where there is no room for the chunk."""
        if pending.response is None:
            return ChunkResponse(Missed.LACKS)
        fetch, span = pending.fetch, pending.fetch.content.span(pending.step.index)
        reserve = partial(fetch.destination.reserve, *span)
        return pending.response.read(pending.part, reserve, self._contents.patience_s)

    def _ask_next(self, fetch: Fetch, step: Assignment) -> _Pending | None:
        """The step's source has answered, and has a slot free again."""
        taken = self._contents.request_ended_and_next(fetch, step)
        return None if taken is None else self._ask(*taken)

    def _verify(self, pending: _Pending, response: ChunkResponse) -> None:
        fetch, step = pending.fetch, pending.step
        digest = chunk_digest(pending.part)
        # The peer that gives a draft's chunk attests its digest, and the bytes must have it.
        if digest != (pending.known or response.digest):
            self._missed(fetch, step, ChunkResponse(Missed.CORRUPT, body_bytes=response.body_bytes))
            return
        if isinstance(fetch.content, Draft):
            if not pending.known and not self._corroboration.accepts(fetch, step, digest):
                self._missed(
                    fetch, step, ChunkResponse(Missed.DISPUTED, body_bytes=response.body_bytes)
                )
                return
            fetch.content.chunks[step.index] = digest
        fetch.destination.put(fetch.content.span(step.index)[0], pending.part)
        self._count_peer_bytes(fetch, response)
        self._verified(fetch, step, response)

    def _count_peer_bytes(self, fetch: Fetch, response: ChunkResponse) -> None:
        self._metrics.peer_bytes_in.inc(response.body_bytes)
        fetch.order.traffic.add(peers_bytes=response.body_bytes)

    def _count(self, fetch: Fetch, body_bytes: int) -> None:
        self._metrics.origin_bytes.inc(body_bytes)
        fetch.order.traffic.add(origin_bytes=body_bytes)

    def _verified(
        self, fetch: Fetch, step: Assignment, response: ChunkResponse | None = None
    ) -> None:
        self._metrics.count_chunk(_kind(step), "verified")
        self._contents.verified(fetch, step, response)

    def _missed(self, fetch: Fetch, step: Assignment, response: ChunkResponse) -> None:
        assert response.missed is not None
        self._metrics.count_chunk("peer", response.missed.value)
        self._count_peer_bytes(fetch, response)
        if self._contents.missed(fetch, step, response):
            self._metrics.bans.inc()

    def _failed(self, fetch: Fetch, step: Assignment, error: CacheError) -> None:
        corrupt = isinstance(error, ChunkCorrupt)
        self._metrics.count_chunk(_kind(step), "corrupt" if corrupt else "failed")
        self._count(fetch, error.body_bytes)
        self._contents.failed(fetch, step, error)


def _kind(step: Assignment) -> str:
    return {ORIGIN: "origin", HERE: "disk"}.get(step.source, "peer")
