"""Which chunk of one content to fetch next, and from where: the swarm's decisions.

The *participants* of a content are the agents that have it or are bringing it. Every chunk has an
order of its own over them, by rendezvous hashing, the same on every node. The first of the order is
the chunk's *owner*: it alone fetches the chunk from the origin. All others take it from the peers
that have it and have a slot free, the least busy first. Where no slot is free they take another
chunk meanwhile, so that no link waits for one transfer. A dead participant falls out of the order.
One that stalls or lies is passed over: the next in the order announces that it fetches the chunk,
and does so once the other has acknowledged that and does not fetch it after all. `participants.py`
says why no two nodes fetch the same chunk, however late messages come.

Why so few transfers at a time: a chunk is passed on when it is whole. The fewer a link carries at
once, the sooner each is whole.

No I/O, no clock: callers pass `now` in seconds of any monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hotplate.cache.errors import CacheError
from hotplate.cache.swarm.assignment import HERE, ORIGIN, Assignment, Missed
from hotplate.cache.swarm.attestations import WITNESSES
from hotplate.cache.swarm.bitmap import bits, first
from hotplate.cache.swarm.content_state import ContentState
from hotplate.cache.swarm.origin_window import Due, OriginWindow
from hotplate.cache.swarm.participants import LATE_S

HEAD = 32
"""Chunks that are fetched in file order, before all others; after them the rarest come first."""

CANNOT_S = 60.0
"""For how long a peer that could not bring a chunk is not asked for it."""

LACKS_S = 1.0
"""For how long a peer is not asked that does not know the content: its next greeting will tell."""


@dataclass(frozen=True, kw_only=True)
class _Options:
    """What the node may ask of the origin and of each peer at this moment."""

    now: float
    avoided: set[str]
    """Participants that are not worth waiting for."""
    origin: bool
    """Whether the origin may be asked."""
    ask: set[str]
    """Peers that may be asked for a chunk that they have."""
    wait: set[str]
    """Peers that may be asked for a chunk that they do not have yet."""
    probe: set[str]
    """Peers of which it is unknown whether they are alive."""
    doubted: set[str]
    """Peers that may neither have nor bring what they announce."""
    announced: int
    """Bitmap of the chunks that any participant fetches from the origin, or has announced."""
    due: Due
    """The chunks to be fetched from the origin now."""


class ChunkPicker:
    """Chooses which chunk of one content to fetch next, and from where."""

    def __init__(self, state: ContentState, *, local: bool = False) -> None:
        self.state = state
        self.settled = False
        """Whether all live peers have given their state; before that nothing is taken from the
        origin, because a peer may be about to take it."""
        self.local = local
        """Whether a copy on this node's disk is tried first."""
        self._chunks = state.chunks
        self._scores = state.scores
        self._members = state.members
        self._window = OriginWindow(state.chunks.count)
        self._damaged: set[int] = set()  # chunks that the copy lacks, or has wrong
        self._cannot: dict[tuple[int, str], float] = {}
        self._late: set[str] = set()
        self._progressed_at: float | None = None
        self._requests: set[Assignment] = set()  # to peers that have not answered yet

    def next(
        self,
        now: float,
        wanted_only: bool,
        origin_free: bool,
        peers_free: bool = True,
        waits_free: bool = True,
    ) -> Assignment | None:
        """Takes the chunk to fetch now; None when there is none. How it went is to be reported.

        `origin_free`, `peers_free` and `waits_free` say whether the node has a request to spare for
        the origin, for peers that have the chunk, and for peers that keep the request until they
        do.
        """
        if self._progressed_at is None:
            self._progressed_at = now
        if wanted_only and not self._chunks.any_wanted:
            return None
        options = self._options(now, origin_free, peers_free, waits_free)
        for number, index in enumerate(self._chunks.wanted(now)):
            if step := self._step(index, options, urgent=True, pressing=number < self._window.size):
                return self._take(step, now)
        if not wanted_only:
            for index in self._unwanted(options):
                if step := self._step(index, options, urgent=False, pressing=False):
                    return self._take(step, now)
        return None

    def _options(
        self, now: float, origin_free: bool, peers_free: bool, waits_free: bool
    ) -> _Options:
        scores, peers = self._scores, self._members.names
        free = {peer for peer in peers if scores.free(peer, now, alone=len(peers) == 1)}
        wait = free if waits_free else set()
        avoided = self._avoided(now)
        doubted = {peer for peer in peers if scores.doubted(peer)}
        announced = 0
        for peer in peers:
            announced |= self._members.origin_fetches(peer)
        sure = [peer for peer in peers if peer not in avoided | doubted | self._late]
        here = self._chunks.verified_bits | self._members.have(sure)
        origin = (
            self.settled
            and origin_free
            and self._members.agreed(now, lambda peer: scores.is_banned(peer, now))
        )
        return _Options(
            now=now,
            avoided=avoided,
            origin=origin,
            ask=free if peers_free else set(),
            wait=wait,
            probe={peer for peer in wait if scores.needs_probe(peer, now)},
            doubted=doubted,
            announced=announced,
            due=self._window.due(here, alone=not self.state.orders.others),
        )

    def _avoided(self, now: float) -> set[str]:
        """Participants that are not worth waiting for."""
        self._cannot = {key: until for key, until in self._cannot.items() if now < until}
        distrusted = {peer for peer in self._members.names if not self._scores.trusted(peer, now)}
        return distrusted | self._members.gone

    def _unwanted(self, options: _Options) -> Iterator[int]:
        """The chunks that may be had now and that no reader waits for. To try every chunk would
        cost as much as to receive one, and mostly all are with peers that have been asked for
        enough."""
        missing = self._chunks.missing_bits(options.now)
        found = missing
        if not self.local:
            due = options.due.chunks if options.origin or options.probe else 0
            cannot = sum({1 << index for index, _ in self._cannot})
            disputed = self.state.attestations.disputed if options.origin else 0
            found &= (
                self._members.have(options.ask)
                | self.state.hints.chunks(options.ask)
                | due
                | cannot
                | disputed
            )
        head = first(missing, HEAD)
        yield from bits(found & head)
        yield from sorted(bits(found & ~head), key=self._members.count)

    def _take(self, step: Assignment, now: float) -> Assignment:
        self._chunks.take(step.index, now)
        self.state.origin_fetches.drop(step.index)
        if step.source == ORIGIN:
            self.state.origin_fetches.begin(step.index)
        elif step.source != HERE:
            self._requests.add(step)
            self.state.hints.use(step.index, step.source)
            self._scores.request_began(step.source, now)
        return step

    def _step(
        self, index: int, options: _Options, urgent: bool, pressing: bool
    ) -> Assignment | None:
        """`pressing`: a reader waits for the chunk, and for few before it."""
        if self.local and index not in self._damaged:
            return Assignment(index, HERE, "was here before", urgent)
        if self.state.attestations.disputed >> index & 1:
            # One after the other: the first may show which peer lies about all of them.
            if (
                not options.origin
                or self.state.attestations.disputed & self.state.origin_fetches.under_way
            ):
                return None
            return Assignment(index, ORIGIN, "peers contradict each other", urgent)
        known = self._members.holders.get(index, ())
        if known and not (options.ask or options.avoided or options.doubted or self._cannot):
            return None  # the usual case: no peer can be asked now
        cannot = {peer for at, peer in self._cannot if at == index} if self._cannot else set()
        avoided = options.avoided | cannot if cannot else options.avoided
        holders = [peer for peer in known if peer not in avoided]
        sure = [peer for peer in holders if peer not in options.doubted]
        seed = f"{self.state.me}{index}"
        having = [peer for peer in sure or holders if peer in options.ask]
        peer = self._scores.least_busy(seed, having)
        if peer is not None:
            return Assignment(index, peer, "has it", urgent)
        hinted = [
            one
            for one in self.state.hints.peers(index)
            if one in options.ask - avoided - options.doubted
        ]
        peer = self._scores.least_busy(seed, hinted)
        if peer is not None:
            return Assignment(index, peer, "has it according to another peer", urgent)
        if sure:
            return None
        if not (pressing or options.probe or (options.origin and index in options.due)):
            return None
        avoided = avoided | self._late | options.doubted
        announcer = None
        if options.announced >> index & 1:
            announcer = self.state.origin_fetches.announcer(index, options.now)
        bringer = announcer or self.state.orders.first(index, avoided)
        if bringer is not None and index not in self.state.origin_fetches:
            # Its greetings tell when it has the chunk; a request now and then, whether it is alive.
            if bringer not in options.wait or not (pressing or bringer in options.probe):
                return None
            return Assignment(index, bringer, "fetches it from the origin", urgent, waits=True)
        if not options.origin or not (pressing or index in options.due):
            return None
        if not self._is_ours(index, options.now):
            return None
        alone = not self.state.orders.others
        return Assignment(index, ORIGIN, "no peer has it" if alone else "owned here", urgent)

    def _is_ours(self, index: int, now: float) -> bool:
        """Whether this node may fetch the chunk now; if it has to announce that first, it does."""
        was_announced = index in self.state.origin_fetches
        ours = self.state.origin_fetches.is_ours(index, now)
        self.state.changed |= index in self.state.origin_fetches and not was_announced
        return ours

    def request_ended(self, step: Assignment, now: float) -> None:
        """All that the peer will send is here: it may be asked for more while that is verified."""
        if step in self._requests:
            self._requests.remove(step)
            self._scores.request_ended(step.source, now)

    def verified(self, step: Assignment, took_s: float, now: float) -> None:
        """The chunk is here and verified."""
        self._end(step, now)
        self._progressed_at = now
        self._late.discard(step.source)
        if step.source not in (ORIGIN, HERE):
            self._scores.delivered(step.source, took_s)
        self._chunks.verified(step.index, now)

    def witnesses(self, step: Assignment, now: float) -> list[str]:
        """The peers to ask for a digest before a draft's chunk from another peer is accepted: those
        that have the chunk, in the order in which they should bring it from the origin."""
        known = set(self._members.holders.get(step.index, ())) - self._avoided(now)
        known -= {step.source, *(peer for peer in known if self._scores.doubted(peer))}
        if not known:
            return []  # the usual case between two nodes
        return [peer for peer in self.state.orders.around(step.index) if peer in known][:WITNESSES]

    def damaged(self, step: Assignment) -> None:
        """The copy on this node's disk lacks the chunk, or has it wrong."""
        self._damaged.add(step.index)
        self._chunks.give_back(step.index)

    def wakes_at(self, now: float) -> float | None:
        """When the next step may be possible, if nothing happens meanwhile; None: it is unknown."""
        soon = [self._chunks.wakes_at(), self._scores.wakes_at(now)]
        return min((at for at in soon if at is not None and at > now), default=None)

    def failed(self, step: Assignment, error: CacheError, now: float) -> CacheError | None:
        """The origin did not give the chunk. None: the fetch goes on; else the error it ends
        with."""
        self._end(step, now)
        return self._chunks.failed(step.index, error, now)

    def missed(
        self, step: Assignment, why: Missed, now: float, retry_s: float = 0.0
    ) -> CacheError | None:
        """A peer did not give the chunk. None: the fetch goes on; else the error it ends with."""
        self._end(step, now)
        index, peer = step.index, step.source
        if why is Missed.NOT_YET:
            assert self._progressed_at is not None  # a step was taken
            if now - self._progressed_at >= LATE_S:
                self._late.add(peer)
        elif why is Missed.CANNOT:
            self._cannot[index, peer] = now + CANNOT_S
        elif why is Missed.BUSY:
            self._scores.busy(peer, retry_s, now)
        elif why is Missed.LACKS:
            self._scores.busy(peer, LACKS_S, now)
        elif why is Missed.STALLED:
            self._scores.stalled(peer, now)
        elif why is Missed.CORRUPT:
            self._scores.ban(peer, now)
        return self._chunks.missed(index, now)

    def _end(self, step: Assignment, now: float) -> None:
        if step.source == ORIGIN:
            self.state.origin_fetches.end(step.index)
            self.state.changed = True
        self.request_ended(step, now)
