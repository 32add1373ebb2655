"""Fetching: threads that read chunks into place and verify them there.

Bytes go from the source straight into the destination's memory and are hashed on the same
thread, so they never become Python objects. Which chunk comes next, and from whom, `Contents` says.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hotplate.cache.errors import CacheError, ChunkCorrupt
from hotplate.cache.fetching.contents import Contents
from hotplate.cache.fetching.corroboration import Corroboration
from hotplate.cache.fetching.fetch import Fetch
from hotplate.cache.manifest import Draft, chunk_digest
from hotplate.cache.metrics import Metrics
from hotplate.cache.origins.blob_source import Came
from hotplate.cache.swarm.assignment import HERE, ORIGIN, Assignment, Missed
from hotplate.cache.swarm.chunk_request import ChunkRequest, ChunkResponse, Peers, PendingResponse
from hotplate.cache.swarm.download_slots import SPARE_SMALL, TRANSFERS, WAITS

_NOTE_SHARE = 0.1
"""Of the time without progress that a fetch survives: bytes on their way are noted that often."""


@dataclass(frozen=True)
class _Asked:
    """A chunk that a peer was asked for."""

    fetch: Fetch
    step: Assignment
    part: memoryview
    known: str
    """Its digest; "" where that is not known."""
    request: PendingResponse | None
    """None: the peer has gone."""
    began: float


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
        """`threads`: as many as chunks may come from the origin at once; `peers` None: there are
        none."""
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
            asked = None
            with self._failing(fetch, step):
                if step.source in (HERE, ORIGIN):
                    self._bring(fetch, step)
                else:
                    asked = self._ask(fetch, step)
            del fetch, taken  # an idle thread keeps nobody's memory alive
            while asked is not None:
                asked = self._receive(asked)

    @contextlib.contextmanager
    def _failing(self, fetch: Fetch, step: Assignment) -> Iterator[None]:
        try:
            yield
        except CacheError as error:
            self._failed(fetch, step, error)
        except Exception as error:  # a thread that dies would leave readers hanging
            self._failed(fetch, step, CacheError(f"{fetch.chunks.name}: {error!r}"))

    def _bring(self, fetch: Fetch, step: Assignment) -> None:
        """From the origin, or from this node's disk.

        Raises CacheError, when the origin did not give it or there is no room for it.
        """
        offset, length = fetch.content.span(step.index)
        if step.source == HERE:
            fetch.destination.reserve(offset, length)
            self._bring_local(fetch, step)
            return
        with self._request(fetch, step), self._part(fetch, step) as part:
            fetch.destination.reserve(offset, length)
            fetch.order.origin.read_into(offset, part, self._progress(fetch, step.index))
        self._count(fetch, length)
        with self._part(fetch, step) as part:
            digest = chunk_digest(part)
        if isinstance(fetch.content, Draft):
            progress = self._progress(fetch, step.index)
            self._corroboration.settle(fetch, step.index, digest, progress)
            fetch.content.chunks[step.index] = digest
        elif digest != fetch.content.chunks[step.index]:
            raise ChunkCorrupt(f"{fetch.chunks.name}: chunk {step.index} has another digest")
        self._came(fetch, step)

    def _part(self, fetch: Fetch, step: Assignment) -> memoryview:
        """Where the chunk goes. Raises CacheError."""
        offset, length = fetch.content.span(step.index)
        return fetch.destination.view[offset : offset + length]

    @contextlib.contextmanager
    def _request(self, fetch: Fetch, step: Assignment) -> Iterator[None]:
        """While the origin is asked. Then the next request goes out at once, on another thread:
        no connection waits for what came over it to be verified."""
        try:
            yield
        finally:
            self._contents.answered(fetch, step)

    def _progress(self, fetch: Fetch, index: int) -> Came:
        """Takes note of a chunk's bytes while they come; often enough for the fetch's patience."""
        noted_at = self._clock()

        def came(got_bytes: int) -> None:
            nonlocal noted_at
            now = self._clock()
            if now - noted_at >= fetch.chunks.stall_s * _NOTE_SHARE:
                noted_at = now
                fetch.progressed(index, got_bytes, now)

        return came

    def _bring_local(self, fetch: Fetch, step: Assignment) -> None:
        assert fetch.order.local is not None
        if fetch.order.local.take(step.index, fetch.destination):
            self._came(fetch, step)
            return
        self._metrics.count_chunk("disk", "corrupt")
        fetch.damaged(step)

    def _ask(self, fetch: Fetch, step: Assignment) -> _Asked | None:
        """Sends a peer the request. None where that could not be; then nobody is asked for it."""
        assert self._peers is not None
        known = fetch.content.chunks[step.index]
        with self._failing(fetch, step):
            part = self._part(fetch, step)
            have = fetch.chunks.verified_bits
            ask = ChunkRequest(fetch.key, step.index, known, step.urgent, self._peers.me, have)
            request = self._peers.ask(step.source, ask)
            return _Asked(fetch, step, part, known, request, self._clock())
        self._contents.answered(fetch, step)
        return None

    def _receive(self, asked: _Asked) -> _Asked | None:
        """Takes a peer's answer. Asks for the next chunk before this one is verified: no connection
        waits for that, and no other thread is woken. What it has asked for."""
        fetch, step, answer = asked.fetch, asked.step, None
        with self._failing(fetch, step):
            answer = self._answer_of(asked)
        if answer is not None and answer.missed is None:
            after = self._ask_next(fetch, step)
            with self._failing(fetch, step):
                self._verify(asked, answer)
            return after
        if answer is not None:
            self._missed(fetch, step, answer)
        self._contents.answered(fetch, step)
        return None

    def _answer_of(self, asked: _Asked) -> ChunkResponse:
        """Raises CacheError where there is no room for it."""
        if asked.request is None:
            return ChunkResponse(Missed.LACKS)
        fetch, span = asked.fetch, asked.fetch.content.span(asked.step.index)
        patience_s = self._contents.patience_s
        return asked.request.read(asked.part, lambda: fetch.destination.reserve(*span), patience_s)

    def _ask_next(self, fetch: Fetch, step: Assignment) -> _Asked | None:
        """The step's source has answered, and has a slot free again."""
        taken = self._contents.answered_and_next(fetch, step)
        return None if taken is None else self._ask(*taken)

    def _verify(self, asked: _Asked, answer: ChunkResponse) -> None:
        fetch, step = asked.fetch, asked.step
        took_s, digest = self._clock() - asked.began, chunk_digest(asked.part)
        # A draft's digests are said by who fetched the chunk, and its bytes must have them.
        if digest != (asked.known or answer.digest):
            self._missed(fetch, step, ChunkResponse(Missed.LIED, body_bytes=answer.body_bytes))
            return
        if isinstance(fetch.content, Draft):
            if not asked.known and not self._corroboration.believes(fetch, step, digest):
                self._missed(
                    fetch, step, ChunkResponse(Missed.DISPUTED, body_bytes=answer.body_bytes)
                )
                return
            fetch.content.chunks[step.index] = digest
        self._count_peer_bytes(fetch, answer)
        self._came(fetch, step, took_s, answer)

    def _count_peer_bytes(self, fetch: Fetch, answer: ChunkResponse) -> None:
        self._metrics.peer_bytes_in.inc(answer.body_bytes)
        fetch.order.traffic.add(peers_bytes=answer.body_bytes)

    def _count(self, fetch: Fetch, body_bytes: int) -> None:
        self._metrics.origin_bytes.inc(body_bytes)
        fetch.order.traffic.add(origin_bytes=body_bytes)

    def _came(
        self,
        fetch: Fetch,
        step: Assignment,
        took_s: float = 0.0,
        answer: ChunkResponse | None = None,
    ) -> None:
        self._metrics.count_chunk(_kind(step), "verified")
        self._contents.came(fetch, step, took_s, answer)

    def _missed(self, fetch: Fetch, step: Assignment, answer: ChunkResponse) -> None:
        assert answer.missed is not None
        self._metrics.count_chunk("peer", answer.missed.name.lower())
        self._count_peer_bytes(fetch, answer)
        if self._contents.missed(fetch, step, answer):
            self._metrics.bans.inc()

    def _failed(self, fetch: Fetch, step: Assignment, error: CacheError) -> None:
        corrupt = isinstance(error, ChunkCorrupt)
        self._metrics.count_chunk(_kind(step), "corrupt" if corrupt else "failed")
        self._count(fetch, error.body_bytes)
        self._contents.failed(fetch, step, error)


def _kind(step: Assignment) -> str:
    return {ORIGIN: "origin", HERE: "disk"}.get(step.source, "peer")
