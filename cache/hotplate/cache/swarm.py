"""Which chunk of one content to fetch next, and from whom: the swarm's decisions.

The *participants* of a content are the agents that have it or are bringing it. Every chunk has an
order of its own over them, by rendezvous hashing, the same on every node. The first of the order
is the chunk's *owner*: it alone fetches the chunk from the origin. All others take it from whoever
has it and has a slot free, the least busy first: what they have no slot for they take elsewhere, or
another chunk meanwhile, so that no link waits for one transfer. Who is left (it stalls, lies or is
dead) falls out of the order, and the next owner takes over.

Why so few transfers at a time: a chunk is passed on when it is whole. The fewer a link carries at
once, the sooner each is.

No I/O, no clock: callers pass `now` in seconds of any monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from hotplate.cache.chunks import Chunks
from hotplate.cache.errors import CacheError
from hotplate.cache.orders import Orders, rank
from hotplate.cache.standing import Standing

ORIGIN = ""
"""As a step's source: the origin, and no peer."""
HERE = "here"
"""As a step's source: a copy on this node's own disk, which may be damaged."""

HEAD = 32
"""Chunks that are fetched in file order, before all others; behind them the rarest come first."""

_WINDOW_SHARE = 1 / 16
_WINDOW_MIN, _WINDOW_MAX = 8, 32
"""Chunks on their way from the origin, in the whole cluster, as a share of all. Few, so that each
leaves it soon and travels on while the next ones come: the last ones reach all nodes later by
about their number. Many, so that the origin's link is full though each comes by a node's link that
carries some from peers, too; and that slow connections together fill it."""

LATE_S = 12.0
"""Without any chunk for that long, a peer that only ever promises one is waited for no longer."""

JOIN_S = 0.05
"""After somebody joined, nothing is taken from the origin for that long: others, who did not know
it yet, may have taken what is ours now, and their news is under way."""

PASSED_S = 60.0
"""For how long a peer that could not bring a chunk is not asked for it."""


@dataclass(frozen=True)
class Step:
    """What to do next."""

    index: int
    source: str
    """A peer's id, or ORIGIN."""
    reason: str
    urgent: bool = False
    """A reader waits for it."""
    waits: bool = False
    """The source has it not yet. Urgent requests are kept until it has; others ask if it lives."""


class Missed(Enum):
    """Why a peer did not give a chunk."""

    NOT_YET = "it is bringing the chunk"
    CANNOT = "it cannot bring the chunk"
    BUSY = "it has no upload slot"
    LACKS = "it neither has the content nor brings it"
    LEFT = "it stalled, or cannot be reached"
    LIED = "its bytes were wrong"


@dataclass(frozen=True)
class _May:
    """What the node has a request to spare for now."""

    origin: bool
    ask: set[str]
    """Of whom a chunk may be asked that they have."""
    wait: set[str]
    """Of whom one may be asked that they do not have yet."""
    probe: set[str]
    """Who were not heard of lately."""
    doubt: set[str]
    """Who may not have what they say."""
    stalled: set[str]
    """Who may not bring what they ought to."""
    claimed: int
    """Bitmap of what comes from the origin to some of all participants."""


@dataclass
class _Share:
    have: int = 0
    claims: int = 0


class Swarm:
    """The participants of one content, and what to take from which."""

    def __init__(self, key: str, chunks: Chunks, me: str, standing: Standing) -> None:
        self.chunks = chunks
        self.settled = True
        """Whether all live peers were asked for their share; before that nothing is taken from
        the origin, because a peer may be about to."""
        self.claims = 0
        """Bitmap of the chunks that this node is fetching from the origin."""
        self._me = me
        self._standing = standing
        self._shares: dict[str, _Share] = {}
        self._holders: dict[int, list[str]] = {}
        self._orders = Orders(key, me)
        self._window = min(max(_WINDOW_MIN, int(chunks.count * _WINDOW_SHARE)), _WINDOW_MAX)
        self.local = False
        """Whether a copy on this node's disk is tried first."""
        self._damaged: set[int] = set()  # what that copy has not, or has wrong
        self._gone: set[str] = set()  # they keep their places, so that nobody else's changes
        self._joined = False
        self._quiet_until = 0.0
        self._passed: dict[tuple[int, str], float] = {}
        self._late: set[str] = set()
        self._moved_at: float | None = None
        self._asked: set[Step] = set()  # of peers, who have not answered yet

    @property
    def participants(self) -> list[str]:
        return [peer for peer in self._shares if peer not in self._gone]

    def learn(self, peer: str, have: int, claims: int | None = None) -> None:
        """What a peer has, as it says, and what it fetches from the origin."""
        share = self._shares.get(peer)
        if share is None:
            share = self._shares[peer] = _Share()
            self._orders.set(self._shares)
            self._joined = True
        self._gone.discard(peer)
        if claims is not None:
            share.claims = claims
        news = have & ~share.have
        share.have |= have
        while news:
            index = (news & -news).bit_length() - 1
            news &= news - 1
            self._holders.setdefault(index, []).append(peer)
            self.chunks.hurry(index)

    def forget(self, peer: str) -> None:
        """It has left, or no longer has or brings the content."""
        if peer in self._shares:
            self._gone.add(peer)
            self._shares[peer].claims = 0

    def next(
        self,
        now: float,
        wanted_only: bool,
        origin_free: bool,
        peers_free: bool = True,
        waits_free: bool = True,
    ) -> Step | None:
        """Takes the chunk to fetch now, or None; how it went is to be reported.

        Whether the node has a request to spare: for the origin, for peers that have the chunk, and
        for those that keep the request until they have it.
        """
        if self._moved_at is None:
            self._moved_at = now
        if self._joined:
            self._joined, self._quiet_until = False, now + JOIN_S
        if wanted_only and not self.chunks.any_wanted:
            return None
        out = self._out(now)
        may = self._may(now, origin_free, peers_free, waits_free)
        for number, index in enumerate(self.chunks.wanted(now)):
            if step := self._step(index, out, may, urgent=True, pressing=number < self._window):
                return self._take(step, now)
        if not wanted_only and self._worth_a_look(out, may):
            for index in self._unwanted(now):
                if step := self._step(index, out, may, urgent=False, pressing=False):
                    return self._take(step, now)
        return None

    def _may(self, now: float, origin_free: bool, peers_free: bool, waits_free: bool) -> _May:
        standing, peers = self._standing, self._shares
        free = {peer for peer in peers if standing.free(peer, now, alone=len(peers) == 1)}
        wait = free if waits_free else set()
        claimed = 0
        for share in peers.values():
            claimed |= share.claims
        return _May(
            self.settled and origin_free and now >= self._quiet_until,
            free if peers_free else set(),
            wait,
            {peer for peer in wait if standing.silent(peer, now)},
            {peer for peer in peers if standing.doubted(peer, now)},
            {peer for peer in peers if standing.stalled_last(peer)},
            claimed,
        )

    def _worth_a_look(self, out: set[str], may: _May) -> bool:
        """Whether there may be something to take: to look all chunks through costs as much as to
        receive one, and mostly all are with peers who have been asked for enough."""
        if may.ask or out or may.doubt or self._passed or self.local:
            return bool(may.origin or may.ask or may.probe or self.local)
        held = self.chunks.verified_bits
        for share in self._shares.values():
            held |= share.have
        return bool(may.origin or may.probe) and held.bit_count() < self.chunks.count

    def _out(self, now: float) -> set[str]:
        """Participants not to wait for."""
        self._passed = {key: until for key, until in self._passed.items() if now < until}
        left = {peer for peer in self._shares if not self._standing.trusted(peer, now)}
        return left | self._gone

    def _unwanted(self, now: float) -> Iterator[int]:
        behind = []
        for number, index in enumerate(self.chunks.missing(now)):
            if number < HEAD or not self._shares:
                yield index
            elif self._holders.get(index):
                behind.append(index)
        yield from sorted(behind, key=lambda index: len(self._holders[index]))

    def _take(self, step: Step, now: float) -> Step:
        self.chunks.take(step.index, now)
        if step.source == ORIGIN:
            self.claims |= 1 << step.index
        elif step.source != HERE:
            self._asked.add(step)
            self._standing.ask(step.source, now)
        return step

    def _step(
        self, index: int, out: set[str], may: _May, urgent: bool, pressing: bool
    ) -> Step | None:
        """`pressing`: a reader waits for it and for few others before it."""
        if self.local and index not in self._damaged:
            return Step(index, HERE, "was here before", urgent)
        known = self._holders.get(index, ())
        if known and not (may.ask or out or may.doubt or self._passed):
            return None  # the usual case: nobody can be asked now
        passed = {peer for at, peer in self._passed if at == index} if self._passed else set()
        left = out | passed if passed else out
        holders = [peer for peer in known if peer not in left]
        sure = [peer for peer in holders if peer not in may.doubt]
        peer = self._least_busy(index, [peer for peer in sure or holders if peer in may.ask])
        if peer is not None:
            return Step(index, peer, "has it", urgent)
        if sure:
            return None
        left = left | self._late | may.stalled
        claimant = self._claimant(index, left) if may.claimed >> index & 1 else None
        bringer = claimant or self._orders.first(index, left)
        if bringer is not None:
            # News tells when it has it; a request now and then, whether it still means to.
            if bringer not in may.wait or not (pressing or bringer in may.probe):
                return None
            return Step(index, bringer, "fetches it from the origin", urgent, waits=True)
        if not may.origin or not (pressing or self._in_window(index, left)):
            return None
        return Step(index, ORIGIN, "owned here" if self._shares else "no peer has it", urgent)

    def _least_busy(self, index: int, peers: list[str]) -> str | None:
        """Ties differ by node and chunk, so that no peer is everybody's first."""
        asked, seed = self._standing.asked, f"{self._me}{index}"
        return min(peers, key=lambda peer: (asked(peer), rank(seed, peer)), default=None)

    def _claimant(self, index: int, left: set[str]) -> str | None:
        """Who took the chunk before this node became its owner."""
        for peer, share in self._shares.items():
            if share.claims >> index & 1 and peer not in left:
                return peer
        return None

    def _in_window(self, index: int, left: set[str]) -> bool:
        out = self.chunks.verified_bits
        for peer, share in self._shares.items():
            if peer in self._gone or peer not in left:
                out |= share.have
        return (~out & ((1 << index) - 1)).bit_count() < self._window

    def answered(self, step: Step, now: float) -> None:
        """All that a peer will send is here: it may be asked for more while that is verified."""
        if step in self._asked:
            self._asked.remove(step)
            self._standing.answered(step.source, now)

    def came(self, step: Step, took_s: float, now: float) -> None:
        """The chunk is here and verified."""
        self._end(step, now)
        self._moved_at = now
        self._late.discard(step.source)
        if step.source not in (ORIGIN, HERE):
            self._standing.gave(step.source, took_s)
        self.chunks.verified(step.index, now)

    def damaged(self, step: Step) -> None:
        """The copy on this node's disk has not the chunk, or has it wrong."""
        self._damaged.add(step.index)
        self.chunks.give_back(step.index)

    def wakes_at(self, now: float) -> float | None:
        """When something may be possible that is not now, if nothing happens meanwhile."""
        soon = [self.chunks.wakes_at(), self._standing.wakes_at(now), self._quiet_until]
        return min((at for at in soon if at is not None and at > now), default=None)

    def failed(self, step: Step, error: CacheError, now: float) -> CacheError | None:
        """The origin did not give it. None: it goes on; else what the content fails with."""
        self._end(step, now)
        return self.chunks.failed(step.index, error, now)

    def missed(
        self, step: Step, why: Missed, now: float, retry_s: float = 0.0
    ) -> CacheError | None:
        """A peer did not give it. None: it goes on; else what the content fails with."""
        self._end(step, now)
        index, peer = step.index, step.source
        if why is Missed.NOT_YET:
            assert self._moved_at is not None  # a step was taken
            if now - self._moved_at >= LATE_S:
                self._late.add(peer)
        elif why is Missed.CANNOT:
            self._passed[index, peer] = now + PASSED_S
        elif why is Missed.BUSY:
            self._standing.busy(peer, retry_s, now)
        elif why is Missed.LACKS:
            self.forget(peer)
        elif why is Missed.LEFT:
            self._standing.stalled(peer, now)
        elif why is Missed.LIED:
            self._standing.lied(peer, now)
        return self.chunks.missed(index, now)

    def _end(self, step: Step, now: float) -> None:
        if step.source == ORIGIN:
            self.claims &= ~(1 << step.index)
        self.answered(step, now)
