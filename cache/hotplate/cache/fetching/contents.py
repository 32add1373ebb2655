"""The contents on their way to this node, and all that its threads and peers change in them.

One lock guards all of it: the fetches, their states, the scores of the peers and the slots for
downloads. Only this class and `Fetch` take it:

    copies       begin, cancel, stalled, close
    fetcher      next_step … request_ended, verified, missed, failed
    gossip       states_for, receive, forget, settle
    peers        find, and then the methods of `Fetch`

`swarm` decides which chunk comes next, and from where.
"""

from __future__ import annotations

import bisect
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set

from hotplate.cache.errors import CacheError
from hotplate.cache.fetching.fetch import Fetch, FetchOrder
from hotplate.cache.fetching.monitor import Monitor
from hotplate.cache.swarm.assignment import HERE, ORIGIN, Assignment, Missed
from hotplate.cache.swarm.chunk_picker import ChunkPicker
from hotplate.cache.swarm.chunk_request import ChunkResponse
from hotplate.cache.swarm.content_state import ContentState
from hotplate.cache.swarm.download_slots import DownloadSlots
from hotplate.cache.swarm.participants import PeerState
from hotplate.cache.swarm.peer_scores import PeerScores

log = logging.getLogger(__name__)


class Contents:
    """All fetches of a node, the most urgent first. Thread-safe."""

    def __init__(
        self,
        origin_slots: int,
        clock: Callable[[], float],
        *,
        me: str = "",
        awaited: Callable[[float], Set[str]] = lambda _now: frozenset(),
        announce: Callable[[], None] = lambda: None,
    ) -> None:
        """`origin_slots` chunks come from the origin at once, and a few more that are pressing or
        small.

        `me` is this node's id. `awaited` gives, on the event loop, the addresses of the agents that
        are to give their state of a content before any of it comes from the origin.
        `announce` is called on any thread when all peers are to be greeted at once.
        """
        self._me = me
        self._clock = clock
        self._awaited = awaited
        self._announce = announce
        self._monitor = Monitor()
        self._work, self._arrived = self._monitor.work, self._monitor.arrived
        self._scores = PeerScores()
        self._slots = DownloadSlots(origin_slots)
        self._fetches: list[Fetch] = []
        self._handed_over = deque[tuple[Fetch, Assignment]]()  # steps for whichever thread is free
        self._begun = 0
        self._closed = False
        self._wakes_at = math.inf  # when a thread that waits looks for work again

    @property
    def patience_s(self) -> float:
        """How long one transfer from a peer may take, in seconds."""
        return self._scores.patience_s

    # For `copies`

    def begin(self, order: FetchOrder) -> Fetch:
        """Starts to bring a content. On the event loop."""
        with self._work:
            self._begun += 1
            state = ContentState(order.key, order.chunks, self._me, self._scores, self._clock())
            picker = ChunkPicker(state, local=order.local is not None)
            fetch = Fetch(order, picker, self._begun, self._monitor)
            bisect.insort(self._fetches, fetch, key=lambda one: one.rank)
            self.settle()
            self._work.notify()
        self._announce()
        return fetch

    def cancel(self, fetch: Fetch) -> None:
        """Ends the fetch: no further chunk of it is taken, and nothing more is reported."""
        with self._work:
            self._drop(fetch)

    def stalled(self, fetch: Fetch) -> CacheError | None:
        """Ends the fetch and returns its error when nothing has arrived for too long."""
        with self._work:
            error = fetch.chunks.stalled(self._clock())
            if error is not None:
                self._drop(fetch)
            return error

    def close(self) -> None:
        """Ends all fetches, and the threads that wait in `next_step`."""
        with self._work:
            self._closed = True
            for fetch in list(self._fetches):
                self._drop(fetch)
            self._work.notify_all()

    # For the threads that bring chunks

    def next_step(self) -> tuple[Fetch, Assignment] | None:
        """Waits for the next chunk to bring, and takes it; None once `close` was called."""
        with self._work:
            while not self._closed:
                now = self._clock()
                taken = self._handed_over.popleft() if self._handed_over else self._look(now)
                if taken is not None:
                    # One thread at a time looks for work: where one finds none, no other would;
                    # where one finds some, there may be more.
                    self._work.notify()
                    return taken
                self._wait(now)
            return None

    def request_ended(self, fetch: Fetch, step: Assignment) -> None:
        """The source has sent all that it will send: its slot is free again."""
        with self._work:
            self._end_request(fetch, step)
            self._work.notify()

    def request_ended_and_next(
        self, fetch: Fetch, step: Assignment
    ) -> tuple[Fetch, Assignment] | None:
        """As `request_ended`; and takes another chunk that a peer has, for the same thread.

        A chunk that is to come from elsewhere is handed to another thread.
        """
        with self._work:
            self._end_request(fetch, step)
            taken = None if self._closed else self._look(self._clock())
            if taken is not None and taken[1].source in (HERE, ORIGIN):
                self._handed_over.append(taken)
                self._work.notify()
                taken = None
        return taken

    def verified(
        self, fetch: Fetch, step: Assignment, response: ChunkResponse | None = None
    ) -> None:
        """A chunk is in its place and verified; `response` is that of the peer that gave it."""
        with self._work:
            if response is not None and not self._scores.proven(step.source):
                self._work.notify()  # from now on it may be asked for more at a time
            took_s = 0.0 if response is None else response.took_s
            fetch.picker.verified(step, took_s, self._clock())
            if response is not None:
                fetch.state.note_have(step.source, response.have)
            if fetch.ended:
                return
            self._announce_change(fetch)
            # Before the fetch is dropped, so that a peer finds the chunk either here or in its
            # copy.
            fetch.order.on_verified(step.index)
            if fetch.chunks.complete:
                self._drop(fetch)
            self._arrived.notify_all()

    def missed(self, fetch: Fetch, step: Assignment, response: ChunkResponse) -> bool:
        """A peer did not give the chunk; whether it is banned for that from now on."""
        why = response.missed
        assert why is not None
        with self._work:
            now = self._clock()
            newly_banned = why is Missed.CORRUPT and not self._scores.is_banned(step.source, now)
            final = fetch.picker.missed(step, why, now, response.retry_s)
            fetch.state.note_have(step.source, response.have)
            fetch.state.add_hints(step.index, response.others)
            self._go_on(fetch, final)
        return newly_banned

    def failed(self, fetch: Fetch, step: Assignment, error: CacheError) -> None:
        """The chunk could not be brought."""
        with self._work:
            self._go_on(fetch, fetch.picker.failed(step, error, self._clock()))

    # For peers

    def find(self, *names: str) -> Fetch | None:
        """The fetch that is known by one of these names (keys or digests), tried in this order."""
        with self._work:
            for name in names:
                for fetch in self._fetches:
                    if name in fetch.names:
                        return fetch
        return None

    def wait_for_arrival(self, timeout_s: float) -> None:
        """Returns when a chunk of any content has come or a fetch has ended, or after that time."""
        with self._arrived:
            self._arrived.wait(timeout_s)

    def states_for(self, peer: str, most: int) -> dict[str, PeerState]:
        """The next message to a peer about each of the `most` urgent contents, by key."""
        with self._work:
            return {one.key: one.state.state_for(peer) for one in self._fetches[:most]}

    def receive(
        self, peer: str, states: Mapping[str, PeerState], sent: Mapping[str, PeerState]
    ) -> None:
        """A peer's states by key, in reply to the states that were `sent`, if any: it neither has
        nor brings what it does not name of those."""
        with self._work:
            now = self._clock()
            for fetch in self._fetches:
                state = states.get(fetch.key)
                if state is not None:
                    fetch.state.receive(peer, state, now)
                elif fetch.key in sent:
                    fetch.state.forget(peer, now, sent[fetch.key].number)
            self._announce_changes()

    def forget(self, peer: str) -> None:
        """The peer is gone."""
        with self._work:
            now = self._clock()
            for fetch in self._fetches:
                fetch.state.forget(peer, now)
            self._announce_changes()

    def settle(self, address: str = "", keys: Iterable[str] = ()) -> None:
        """Lets a content come from the origin once all awaited agents have given their state of it.

        The agent at `address` has just given its state of the contents with these `keys`. On the
        event loop.
        """
        with self._work:
            awaited, given = self._awaited(self._clock()), frozenset(keys)
            for fetch in self._fetches:
                if fetch.key in given:
                    fetch.answered_by.add(address)
                if not fetch.picker.settled and awaited <= fetch.answered_by:
                    fetch.picker.settled = True
                    self._work.notify()

    # Inside, with the lock held

    def _drop(self, fetch: Fetch) -> None:
        if not fetch.ended:
            fetch.ended = True
            self._fetches.remove(fetch)
            self._arrived.notify_all()

    # Apart from `next_step`, so that a waiting thread keeps nothing alive that it has looked at.

    def _look(self, now: float) -> tuple[Fetch, Assignment] | None:
        free = self._slots
        for wanted_only in (True, False):
            for fetch in self._fetches:
                pressing = wanted_only or fetch.order.urgent
                try:
                    step = fetch.picker.next(
                        now,
                        wanted_only,
                        free.origin_free(small=fetch.small, pressing=pressing),
                        free.peers_free,
                        free.waits_free,
                    )
                except Exception as error:  # a bug must end this fetch only, and no thread
                    name = fetch.chunks.name
                    log.exception("%s cannot be fetched: no next chunk could be chosen", name)
                    self._go_on(fetch, CacheError(f"{name}: no next chunk was chosen ({error!r})"))
                    return self._look(now)
                self._announce_change(fetch)
                if step is not None:
                    free.begin(step)
                    return fetch, step
        return None

    def _wait(self, now: float) -> None:
        """Waits for work; one of the waiting threads looks again when there may be some."""
        wakes = [at for one in self._fetches if (at := one.picker.wakes_at(now)) is not None]
        at = min(wakes, default=math.inf)
        if at >= self._wakes_at:
            self._work.wait()
            return
        self._wakes_at = at
        self._work.wait(max(0.001, at - now))
        if self._wakes_at == at:
            self._wakes_at = math.inf

    def _end_request(self, fetch: Fetch, step: Assignment) -> None:
        self._slots.end(step)
        fetch.picker.request_ended(step, self._clock())

    def _go_on(self, fetch: Fetch, final: CacheError | None) -> None:
        """A chunk did not come; `final` is the error that ends the whole fetch, if one does."""
        self._announce_change(fetch)
        self._work.notify()  # this thread may have asked for another already
        if final is not None and not fetch.ended:
            self._drop(fetch)
            fetch.order.on_failed(final)

    def _announce_change(self, fetch: Fetch) -> None:
        """Has all peers greeted at once where this content's state has changed."""
        if fetch.state.changed:
            fetch.state.changed = False
            if fetch.state.participants:
                self._announce()

    def _announce_changes(self) -> None:
        """The same for all contents, after a peer's message; there may be work, too."""
        changed = [one for one in self._fetches if one.state.changed]
        for fetch in changed:
            fetch.state.changed = False
        if changed:
            self._announce()
        self._work.notify()
