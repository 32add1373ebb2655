"""Fetching: threads that read chunks into place and verify them there.

Bytes go from the source straight into the destination's memory and are hashed on the same
thread, so they never become Python objects. Reports are called on these threads. Which chunk
comes next, and from whom, `swarm.py` decides.
"""

from __future__ import annotations

import bisect
import contextlib
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from hotplate.cache.errors import CacheError, ChunkCorrupt
from hotplate.cache.fetching.corroboration import Belief
from hotplate.cache.fetching.fetch import Fetch
from hotplate.cache.manifest import Draft, chunk_digest
from hotplate.cache.metrics import Metrics
from hotplate.cache.origins.blob_source import Came
from hotplate.cache.swarm.assignment import HERE, ORIGIN, Missed, Step
from hotplate.cache.swarm.chunk_picker import Swarm
from hotplate.cache.swarm.chunk_request import PeerAnswer, PeerAsk, Peers, Request
from hotplate.cache.swarm.download_slots import SPARE_SMALL, TRANSFERS, WAITS, Downloads
from hotplate.cache.swarm.peer_scores import Standing

_NOTE_SHARE = 0.1
"""Of the time without progress that a fetch survives: bytes on their way are noted that often."""


@dataclass(frozen=True)
class _Asked:
    """A chunk that a peer was asked for."""

    fetch: Fetch
    step: Step
    part: memoryview
    known: str
    """Its digest; "" where that is not known."""
    request: Request | None
    """None: the peer has gone."""
    began: float


class Fetcher:
    """Runs fetches on a few threads: chunks that readers wait for first, then in file order.

    `work` guards the fetches and their swarms; `arrived` (the same lock) is told of every chunk.
    """

    def __init__(
        self,
        threads: int,
        clock: Callable[[], float],
        metrics: Metrics,
        peers: Peers | None = None,
    ) -> None:
        """`threads` chunks come from the origin at once, and a few that are pressing or small;
        `peers` None: there are none."""
        self.clock = clock
        self.standing = Standing()
        lock = threading.RLock()
        self.work = threading.Condition(lock)
        self.arrived = threading.Condition(lock)
        self._metrics = metrics
        self._peers = peers
        self._belief = Belief(self.work, clock, metrics, self.standing, peers)
        self._downloads = Downloads(threads)
        self._fetches: list[Fetch] = []
        self._handed: deque[tuple[Fetch, Step]] = deque()  # taken, for whichever thread is free
        self._arrivals = 0
        self._closed = False
        self._wakes_at = math.inf  # when a thread that waits looks for work again
        for number in range(
            threads + SPARE_SMALL + (TRANSFERS + WAITS if peers is not None else 0)
        ):
            threading.Thread(target=self._run, name=f"fetch-{number}", daemon=True).start()

    def start(self, fetch: Fetch) -> None:
        with self.work:
            self._arrivals += 1
            fetch.arrival = self._arrivals
            me = self._peers.me if self._peers is not None else ""
            fetch.swarm = Swarm(fetch.key, fetch.chunks, me, self.standing, self.clock())
            fetch.swarm.local = fetch.local is not None
            fetch.swarm.settled = self._peers is None
            bisect.insort(self._fetches, fetch, key=lambda one: one.rank)
            self.work.notify()
        if self._peers is not None:
            self._peers.begun(fetch.key)

    def current(self) -> list[Fetch]:
        """What is being fetched, the most urgent first. To be called with `work` held."""
        return self._fetches

    def find(self, key: str) -> Fetch | None:
        """By what peers know it by, or by its digest. To be called with `work` held."""
        return next((one for one in self._fetches if key in one.names), None)

    def want(self, fetch: Fetch, indices: Iterable[int]) -> None:
        with self.work:
            fetch.chunks.want(indices)
            self.work.notify()

    def take_whole(self, fetch: Fetch) -> None:
        """From now on brings all of it, not only what readers want."""
        with self.work:
            fetch.chunks.whole = True
            self.work.notify()

    def cancel(self, fetch: Fetch) -> None:
        """Takes no further chunk of it and reports nothing more."""
        with self.work:
            self._drop(fetch)

    def stalls_at(self, fetch: Fetch) -> float | None:
        with self.work:
            return fetch.chunks.stalls_at()

    def stalled(self, fetch: Fetch) -> CacheError | None:
        """Ends the fetch and returns its error when nothing has arrived for too long."""
        with self.work:
            error = fetch.chunks.stalled(self.clock())
            if error is not None:
                self._drop(fetch)
            return error

    def close(self) -> None:
        with self.work:
            self._closed = True
            self._fetches.clear()
            self.work.notify_all()
            self.arrived.notify_all()

    def _drop(self, fetch: Fetch) -> None:
        if fetch in self._fetches:
            self._fetches.remove(fetch)
            self.arrived.notify_all()

    def _run(self) -> None:
        while (taken := self._take()) is not None:
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
    def _failing(self, fetch: Fetch, step: Step) -> Iterator[None]:
        try:
            yield
        except CacheError as error:
            self._failed(fetch, step, error)
        except Exception as error:  # a thread that dies would leave readers hanging
            self._failed(fetch, step, CacheError(f"{fetch.chunks.name}: {error!r}"))

    def _take(self) -> tuple[Fetch, Step] | None:
        with self.work:
            while not self._closed:
                now = self.clock()
                taken = self._handed.popleft() if self._handed else self._look(now)
                if taken is not None:
                    # One thread at a time looks for work: what one finds none of, no other would;
                    # where one found some, there may be more.
                    self.work.notify()
                    return taken
                self._wait_until(self._next_look(now), now)
            return None

    # Apart from `_take`: a thread that waits there must not hold on to what it has looked at.

    def _look(self, now: float) -> tuple[Fetch, Step] | None:
        free = self._downloads
        for wanted_only in (True, False):
            for fetch in self._fetches:
                step = fetch.swarm.next(
                    now,
                    wanted_only,
                    free.origin_free(small=fetch.small, pressing=wanted_only or fetch.urgent),
                    free.peers_free,
                    free.waits_free,
                )
                self._tell(fetch)
                if step is not None:
                    free.begin(step)
                    return fetch, step
        return None

    def _next_look(self, now: float) -> float:
        wakes = [at for one in self._fetches if (at := one.swarm.wakes_at(now)) is not None]
        return min(wakes, default=math.inf)

    def _wait_until(self, at: float, now: float) -> None:
        """Waits for work; one of the threads that wait looks again at that time."""
        if at >= self._wakes_at:
            self.work.wait()
            return
        self._wakes_at = at
        self.work.wait(max(0.001, at - now))
        if self._wakes_at == at:
            self._wakes_at = math.inf

    def _tell(self, fetch: Fetch) -> None:
        """Has the others told at once of what they should know."""
        if fetch.swarm.news and self._peers is not None:
            fetch.swarm.news = False
            if fetch.swarm.participants:
                self._peers.news()

    def _bring(self, fetch: Fetch, step: Step) -> None:
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
            fetch.origin.read_into(offset, part, self._hears(fetch, step.index))
        self._count(fetch, length)
        with self._part(fetch, step) as part:
            digest = chunk_digest(part)
        if isinstance(fetch.content, Draft):
            hears = self._hears(fetch, step.index)
            self._belief.settle(fetch, step.index, digest, hears)
            fetch.content.chunks[step.index] = digest
        elif digest != fetch.content.chunks[step.index]:
            raise ChunkCorrupt(f"{fetch.chunks.name}: chunk {step.index} has another digest")
        self._came(fetch, step, 0.0)

    def _part(self, fetch: Fetch, step: Step) -> memoryview:
        """Where the chunk goes. Raises CacheError."""
        offset, length = fetch.content.span(step.index)
        return fetch.destination.view[offset : offset + length]

    @contextlib.contextmanager
    def _request(self, fetch: Fetch, step: Step) -> Iterator[None]:
        """While the origin is asked. Then the next request goes out at once, on another thread:
        no connection waits for what came over it to be verified."""
        try:
            yield
        finally:
            with self.work:
                self._answered(fetch, step)
                self.work.notify()

    def _hears(self, fetch: Fetch, index: int) -> Came:
        """Takes note of a chunk's bytes while they come; often enough for the fetch's patience."""
        noted_at = self.clock()

        def came(got_bytes: int) -> None:
            nonlocal noted_at
            now = self.clock()
            if now - noted_at >= fetch.chunks.stall_s * _NOTE_SHARE:
                noted_at = now
                with self.work:
                    fetch.chunks.came(index, got_bytes, now)

        return came

    def _bring_local(self, fetch: Fetch, step: Step) -> None:
        assert fetch.local is not None
        if fetch.local.take(step.index, fetch.destination):
            self._came(fetch, step, 0.0)
            return
        self._metrics.count_chunk("disk", "corrupt")
        with self.work:
            fetch.swarm.damaged(step)

    def _ask(self, fetch: Fetch, step: Step) -> _Asked | None:
        """Sends a peer the request. None where that could not be; then nobody is asked for it."""
        assert self._peers is not None
        known = fetch.content.chunks[step.index]
        with self._failing(fetch, step):
            part = self._part(fetch, step)
            have = fetch.chunks.verified_bits
            ask = PeerAsk(fetch.key, step.index, known, step.urgent, self._peers.me, have)
            request = self._peers.ask(step.source, ask)
            return _Asked(fetch, step, part, known, request, self.clock())
        with self.work:
            self._answered(fetch, step)
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
        with self.work:
            self._answered(fetch, step)
        return None

    def _answer_of(self, asked: _Asked) -> PeerAnswer:
        """Raises CacheError where there is no room for it."""
        if asked.request is None:
            return PeerAnswer(Missed.LACKS)
        fetch, span = asked.fetch, asked.fetch.content.span(asked.step.index)
        patience_s = self.standing.patience_s
        return asked.request.read(asked.part, lambda: fetch.destination.reserve(*span), patience_s)

    def _ask_next(self, fetch: Fetch, step: Step) -> _Asked | None:
        """That step's source has answered, and its slot is free again."""
        with self.work:
            self._answered(fetch, step)
            taken = None if self._closed else self._look(self.clock())
            # What else is not to wait for this thread.
            if taken is not None and taken[1].source in (HERE, ORIGIN):
                self._handed.append(taken)
                self.work.notify()
                taken = None
        return None if taken is None else self._ask(*taken)

    def _answered(self, fetch: Fetch, step: Step) -> None:
        """With `work` held."""
        self._downloads.end(step)
        fetch.swarm.answered(step, self.clock())

    def _verify(self, asked: _Asked, answer: PeerAnswer) -> None:
        fetch, step = asked.fetch, asked.step
        took_s, digest = self.clock() - asked.began, chunk_digest(asked.part)
        # A draft's digests are said by who fetched the chunk, and its bytes must have them.
        if digest != (asked.known or answer.digest):
            self._missed(fetch, step, PeerAnswer(Missed.LIED, body_bytes=answer.body_bytes))
            return
        if isinstance(fetch.content, Draft):
            if not asked.known and not self._belief.believes(fetch, step, digest):
                self._missed(fetch, step, PeerAnswer(Missed.DISPUTED, body_bytes=answer.body_bytes))
                return
            fetch.content.chunks[step.index] = digest
        self._count_peer_bytes(fetch, answer)
        self._came(fetch, step, took_s, answer)

    def _count_peer_bytes(self, fetch: Fetch, answer: PeerAnswer) -> None:
        self._metrics.peer_bytes_in.inc(answer.body_bytes)
        fetch.traffic.add(peers_bytes=answer.body_bytes)

    def _count(self, fetch: Fetch, body_bytes: int) -> None:
        self._metrics.origin_bytes.inc(body_bytes)
        fetch.traffic.add(origin_bytes=body_bytes)

    def _came(
        self, fetch: Fetch, step: Step, took_s: float, answer: PeerAnswer | None = None
    ) -> None:
        self._metrics.count_chunk(_kind(step), "verified")
        with self.work:
            if answer is not None and not self.standing.proven(step.source):
                self.work.notify()  # from now on it may be asked for more at a time
            fetch.swarm.came(step, took_s, self.clock())
            if answer is not None:
                fetch.swarm.holds(step.source, answer.have)
            if fetch not in self._fetches:
                return
            self._tell(fetch)
            # Before it is dropped: who asks for a chunk finds it here or where it is kept.
            fetch.on_verified(step.index)
            if fetch.chunks.complete:
                self._drop(fetch)
            self.arrived.notify_all()

    def _missed(self, fetch: Fetch, step: Step, answer: PeerAnswer) -> None:
        why = answer.missed
        assert why is not None
        self._metrics.count_chunk("peer", why.name.lower())
        self._count_peer_bytes(fetch, answer)
        with self.work:
            now = self.clock()
            if why is Missed.LIED and not self.standing.is_banned(step.source, now):
                self._metrics.bans.inc()
            final = fetch.swarm.missed(step, why, now, answer.retry_s)
            fetch.swarm.holds(step.source, answer.have)
            fetch.swarm.hear_of(step.index, answer.others)
            self._end_of(fetch, final)

    def _failed(self, fetch: Fetch, step: Step, error: CacheError) -> None:
        corrupt = isinstance(error, ChunkCorrupt)
        self._metrics.count_chunk(_kind(step), "corrupt" if corrupt else "failed")
        self._count(fetch, error.body_bytes)
        with self.work:
            self._end_of(fetch, fetch.swarm.failed(step, error, self.clock()))

    def _end_of(self, fetch: Fetch, final: CacheError | None) -> None:
        """What is to be done after a chunk did not come."""
        self._tell(fetch)
        self.work.notify()  # this thread may have asked for another already
        if final is not None and fetch in self._fetches:
            self._drop(fetch)
            fetch.on_failed(final)


def _kind(step: Step) -> str:
    return {ORIGIN: "origin", HERE: "disk"}.get(step.source, "peer")
