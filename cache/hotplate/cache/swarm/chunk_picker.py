"""Which chunk of one content to fetch next, and from whom: the swarm's decisions.

The *participants* of a content are the agents that have it or are bringing it. Every chunk has an
order of its own over them, by rendezvous hashing, the same on every node. The first of the order
is the chunk's *owner*: it alone fetches the chunk from the origin. All others take it from whoever
has it and has a slot free, the least busy first: what they have no slot for they take elsewhere, or
another chunk meanwhile, so that no link waits for one transfer. Who is dead falls out of the order.
Who is left (it stalls, or lies) is passed over: the next claims the chunk, and takes it once the
other has heard of that and does not bring it after all. `participants.py` says why no two take the
same chunk, however late news come.

Why so few transfers at a time: a chunk is passed on when it is whole. The fewer a link carries at
once, the sooner each is.

No I/O, no clock: callers pass `now` in seconds of any monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hotplate.cache.errors import CacheError
from hotplate.cache.swarm.assignment import HERE, ORIGIN, Assignment, Missed
from hotplate.cache.swarm.attestations import WITNESSES, Attestations
from hotplate.cache.swarm.bitmap import bits, first
from hotplate.cache.swarm.chunks import Chunks
from hotplate.cache.swarm.claims import Claims
from hotplate.cache.swarm.hints import Hints
from hotplate.cache.swarm.participants import LATE_S, Participants, PeerState
from hotplate.cache.swarm.peer_scores import PeerScores
from hotplate.cache.swarm.rendezvous import Rendezvous, rank

HEAD = 32
"""Chunks that are fetched in file order, before all others; behind them the rarest come first."""

_WINDOW_SHARE = 1 / 16
_WINDOW_MIN, _WINDOW_MAX = 8, 32
"""Chunks on their way from the origin, in the whole cluster, as a share of all. Few, so that each
leaves it soon and travels on while the next ones come: the last ones reach all nodes later by
about their number. Many, so that the origin's link is full though each comes by a node's link that
carries some from peers, too; and that slow connections together fill it."""
WINDOW_FIRST = 2
"""Before any has come: while nobody has one to pass on, all links but the origin's are idle."""

PASSED_S = 60.0
"""For how long a peer that could not bring a chunk is not asked for it."""

HINTS = 4
"""Others that are named to who finds this node busy: as many as it may ask at once."""

LACKS_S = 1.0
"""For how long one is not asked that does not know the content: by then its own news have come."""


@dataclass(frozen=True, kw_only=True)
class _May:
    """What the node has a request to spare for now."""

    now: float
    out: set[str]
    """Participants not to wait for."""
    origin: bool
    ask: set[str]
    """Of whom a chunk may be asked that they have."""
    wait: set[str]
    """Of whom one may be asked that they do not have yet."""
    probe: set[str]
    """Who were not heard of lately."""
    doubt: set[str]
    """Who may not have what they say, nor bring what they ought to."""
    claimed: int
    """Bitmap of what comes from the origin to some of all participants."""
    due: int
    """Bitmap of what is to be on its way from the origin now: the first that are nowhere else."""
    last_due: int
    """What is before it is to be here already."""

    def in_window(self, index: int) -> bool:
        """Whether it is to be on its way from the origin now, or is before what is."""
        return index <= self.last_due


class Swarm:
    """The participants of one content, and what to take from which."""

    def __init__(
        self,
        key: str,
        chunks: Chunks,
        me: str,
        standing: PeerScores,
        began: float = 0.0,
        *,
        settled: bool = True,
        local: bool = False,
    ) -> None:
        self.chunks = chunks
        self.settled = settled
        """Whether all live peers were asked for their share; before that nothing is taken from
        the origin, because a peer may be about to."""
        self.news = False
        """Whether there is something to tell the others at once; for who tells them to put out."""
        self.me = me
        self._standing = standing
        self._participants = Participants(me, began)
        self._orders = Rendezvous(key, me)
        self._window = min(max(_WINDOW_MIN, int(chunks.count * _WINDOW_SHARE)), _WINDOW_MAX)
        self.local = local
        """Whether a copy on this node's disk is tried first."""
        self._damaged: set[int] = set()  # what that copy has not, or has wrong
        self.claims = Claims(self._participants, self._orders, standing)
        self._passed: dict[tuple[int, str], float] = {}
        self._late: set[str] = set()
        self._moved_at: float | None = None
        self._asked: set[Assignment] = set()  # of peers, who have not answered yet
        self._hints = Hints()
        self.attestations = Attestations(standing)
        """What peers say of the digests, where they are not known."""

    @property
    def participants(self) -> list[str]:
        return self._participants.names

    def say(self, to: str) -> PeerState:
        """What to tell somebody of this node's share."""
        have, moves = self.chunks.verified_bits, self.chunks.moves
        return self._participants.say(to, have, self.claims.bits, moves)

    def learn(self, peer: str, share: PeerState, now: float) -> None:
        """What a peer says of its share."""
        news = self._participants.learn(peer, share, now)
        self._hurry(news.have)
        if news.joined:
            self._changed()
        if news.moves and self._participants.claims(peer):
            self.chunks.moved(now)
        self.claims.yield_to(peer)

    def holds(self, peer: str, have: int) -> None:
        """What a peer has, as it says in passing."""
        self._hurry(self._participants.holds(peer, have))

    def others(self, index: int, asker: str) -> list[str]:
        """Some who have the chunk, for who finds this node busy. Not all are told of the same."""
        seed, known = f"{asker}{index}", self._participants.holders.get(index, ())
        names = [peer for peer in known if peer not in self._participants.gone and peer != asker]
        return sorted(names, key=lambda name: rank(seed, name))[:HINTS]

    def hear_of(self, index: int, peers: Iterable[str]) -> None:
        """Somebody says that those have the chunk. They are asked once where nobody else can be;
        nothing else is made of it, since it may be wrong."""
        self._hints.add(index, set(peers).intersection(self._participants.names))

    def _hurry(self, news: int) -> None:
        for index in bits(news):
            self.chunks.hurry(index)
            self.claims.drop(index)

    def forget(self, peer: str, now: float, asked: int | None = None) -> None:
        """It has left; or no longer has or brings the content, as it said to message `asked`."""
        if self._participants.forget(peer, asked, now):
            self._changed()

    def _changed(self) -> None:
        self._orders.set(self._participants.names)
        self.news = True

    def next(
        self,
        now: float,
        wanted_only: bool,
        origin_free: bool,
        peers_free: bool = True,
        waits_free: bool = True,
    ) -> Assignment | None:
        """Takes the chunk to fetch now, or None; how it went is to be reported.

        Whether the node has a request to spare: for the origin, for peers that have the chunk, and
        for those that keep the request until they have it.
        """
        if self._moved_at is None:
            self._moved_at = now
        if wanted_only and not self.chunks.any_wanted:
            return None
        may = self._may(now, origin_free, peers_free, waits_free)
        for number, index in enumerate(self.chunks.wanted(now)):
            if step := self._step(index, may, urgent=True, pressing=number < self._window):
                return self._take(step, now)
        if not wanted_only:
            for index in self._unwanted(may):
                if step := self._step(index, may, urgent=False, pressing=False):
                    return self._take(step, now)
        return None

    def _may(self, now: float, origin_free: bool, peers_free: bool, waits_free: bool) -> _May:
        standing, peers = self._standing, self.participants
        free = {peer for peer in peers if standing.free(peer, now, alone=len(peers) == 1)}
        wait = free if waits_free else set()
        out = self._out(now)
        doubt = {peer for peer in peers if standing.doubted(peer)}
        claimed = 0
        for peer in peers:
            claimed |= self._participants.claims(peer)
        sure = [peer for peer in peers if peer not in out | doubt | self._late]
        here = self.chunks.verified_bits | self._participants.have(sure)
        left_at_origin = ~here & ((1 << self.chunks.count) - 1)
        elsewhere = self.chunks.count - left_at_origin.bit_count()
        alone = not self._orders.others
        due = first(left_at_origin, self._window if alone else _due_count(self._window, elsewhere))
        origin = (
            self.settled
            and origin_free
            and self._participants.agreed(now, lambda peer: standing.is_banned(peer, now))
        )
        return _May(
            now=now,
            out=out,
            origin=origin,
            ask=free if peers_free else set(),
            wait=wait,
            probe={peer for peer in wait if standing.silent(peer, now)},
            doubt=doubt,
            claimed=claimed,
            due=due,
            last_due=due.bit_length() - 1 if due != left_at_origin else self.chunks.count,
        )

    def _out(self, now: float) -> set[str]:
        """Participants not to wait for."""
        self._passed = {key: until for key, until in self._passed.items() if now < until}
        left = {peer for peer in self.participants if not self._standing.trusted(peer, now)}
        return left | self._participants.gone

    def _unwanted(self, may: _May) -> Iterator[int]:
        """What may be had now of that no reader waits for: to try all chunks would cost as much as
        to receive one, and mostly all are with peers who have been asked for enough."""
        missing = self.chunks.missing_bits(may.now)
        found = missing
        if not self.local:
            due = may.due if may.origin or may.probe else 0
            passed = sum({1 << index for index, _ in self._passed})
            disputed = self.attestations.disputed if may.origin else 0
            found &= (
                self._participants.have(may.ask)
                | self._hints.chunks(may.ask)
                | due
                | passed
                | disputed
            )
        head = first(missing, HEAD)
        yield from bits(found & head)
        yield from sorted(bits(found & ~head), key=self._participants.count)

    def _take(self, step: Assignment, now: float) -> Assignment:
        self.chunks.take(step.index, now)
        self.claims.drop(step.index)
        if step.source == ORIGIN:
            self.claims.begin(step.index)
        elif step.source != HERE:
            self._asked.add(step)
            self._hints.use(step.index, step.source)
            self._standing.ask(step.source, now)
        return step

    def _step(self, index: int, may: _May, urgent: bool, pressing: bool) -> Assignment | None:
        """`pressing`: a reader waits for it and for few others before it."""
        if self.local and index not in self._damaged:
            return Assignment(index, HERE, "was here before", urgent)
        if self.attestations.disputed >> index & 1:
            # One after the other: the first may tell who lies in all of them.
            if not may.origin or self.attestations.disputed & self.claims.under_way:
                return None
            return Assignment(index, ORIGIN, "peers contradict each other", urgent)
        known = self._participants.holders.get(index, ())
        if known and not (may.ask or may.out or may.doubt or self._passed):
            return None  # the usual case: nobody can be asked now
        passed = {peer for at, peer in self._passed if at == index} if self._passed else set()
        left = may.out | passed if passed else may.out
        holders = [peer for peer in known if peer not in left]
        sure = [peer for peer in holders if peer not in may.doubt]
        seed = f"{self.me}{index}"
        having = [peer for peer in sure or holders if peer in may.ask]
        peer = self._standing.least_busy(seed, having)
        if peer is not None:
            return Assignment(index, peer, "has it", urgent)
        hinted = [one for one in self._hints.peers(index) if one in may.ask - left - may.doubt]
        peer = self._standing.least_busy(seed, hinted)
        if peer is not None:
            return Assignment(index, peer, "is said to have it", urgent)
        if sure:
            return None
        if not (pressing or may.probe or (may.origin and may.in_window(index))):
            return None
        left = left | self._late | may.doubt
        claimant = self.claims.claimant(index, may.now) if may.claimed >> index & 1 else None
        bringer = claimant or self._orders.first(index, left)
        if bringer is not None and index not in self.claims:
            # News tells when it has it; a request now and then, whether it still means to.
            if bringer not in may.wait or not (pressing or bringer in may.probe):
                return None
            return Assignment(index, bringer, "fetches it from the origin", urgent, waits=True)
        if not may.origin or not (pressing or may.in_window(index)):
            return None
        if not self._is_ours(index, may.now):
            return None
        alone = not self._orders.others
        return Assignment(index, ORIGIN, "no peer has it" if alone else "owned here", urgent)

    def _is_ours(self, index: int, now: float) -> bool:
        """Whether this node may bring the chunk now; if it has to claim it first, that is news."""
        was_claimed = index in self.claims
        ours = self.claims.is_ours(index, now)
        self.news |= index in self.claims and not was_claimed
        return ours

    def answered(self, step: Assignment, now: float) -> None:
        """All that a peer will send is here: it may be asked for more while that is verified."""
        if step in self._asked:
            self._asked.remove(step)
            self._standing.answered(step.source, now)

    def came(self, step: Assignment, took_s: float, now: float) -> None:
        """The chunk is here and verified."""
        self._end(step, now)
        self._moved_at = now
        self._late.discard(step.source)
        if step.source not in (ORIGIN, HERE):
            self._standing.gave(step.source, took_s)
        self.chunks.verified(step.index, now)

    def witnesses(self, step: Assignment, now: float) -> list[str]:
        """Whose word to hear before a draft's chunk is believed that a peer gave: others who have
        it, and first who should have brought it from the origin."""
        known = set(self._participants.holders.get(step.index, ())) - self._out(now)
        known -= {step.source, *(peer for peer in known if self._standing.doubted(peer))}
        if not known:
            return []  # the usual case between two nodes
        return [peer for peer in self._orders.around(step.index) if peer in known][:WITNESSES]

    def damaged(self, step: Assignment) -> None:
        """The copy on this node's disk has not the chunk, or has it wrong."""
        self._damaged.add(step.index)
        self.chunks.give_back(step.index)

    def wakes_at(self, now: float) -> float | None:
        """When something may be possible that is not now, if nothing happens meanwhile."""
        soon = [self.chunks.wakes_at(), self._standing.wakes_at(now)]
        return min((at for at in soon if at is not None and at > now), default=None)

    def failed(self, step: Assignment, error: CacheError, now: float) -> CacheError | None:
        """The origin did not give it. None: it goes on; else what the content fails with."""
        self._end(step, now)
        return self.chunks.failed(step.index, error, now)

    def missed(
        self, step: Assignment, why: Missed, now: float, retry_s: float = 0.0
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
            self._standing.busy(peer, LACKS_S, now)
        elif why is Missed.LEFT:
            self._standing.stalled(peer, now)
        elif why is Missed.LIED:
            self._standing.lied(peer, now)
        return self.chunks.missed(index, now)

    def _end(self, step: Assignment, now: float) -> None:
        if step.source == ORIGIN:
            self.claims.end(step.index)
            self.news = True
        self.answered(step, now)


def _due_count(window: int, elsewhere: int) -> int:
    """How many chunks are to be on their way from the origin now: a few at first, so that soon
    there is something to pass on, and as many again as are elsewhere by now."""
    return min(max(WINDOW_FIRST, elsewhere), window)
