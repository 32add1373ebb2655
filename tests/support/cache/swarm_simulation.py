"""A cluster of agents in virtual time: the real planner, over links of a given speed.

Every node has a link of `link` bytes per second up and as much down, and so has the origin.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotplate.cache.manifest import CHUNK_BYTES, count_chunks
from hotplate.cache.swarm.assignment import ORIGIN, Assignment, Missed
from hotplate.cache.swarm.chunk_picker import Swarm
from hotplate.cache.swarm.chunks import Chunks
from hotplate.cache.swarm.download_slots import TRANSFERS, WAITS
from hotplate.cache.swarm.participants import PeerState
from hotplate.cache.swarm.peer_scores import NO_PROGRESS_S, PeerScores
from hotplate.cache.swarm.upload_slots import UploadSlots

LINK = 125e6
DELAY_S = 0.001
HOLD_S = 1.0
HELLO_S = 1.0
NEWS_S = 0.02
QUANTUM_S = 0.002
ROUNDS = 6
ORIGIN_REQUESTS = 2


@dataclass(eq=False)
class _End:
    """One end of links: a node, or the origin."""


@dataclass(eq=False)
class _Transfer:
    source: _End
    target: _End
    left_bytes: float
    done: Callable[[], None]
    rate: float = 0.0


class Cluster:
    """Nodes that bring one content of `size_bytes` each."""

    def __init__(
        self, size_bytes: int, link: float = LINK, news_s: Callable[[], float] = lambda: DELAY_S
    ) -> None:
        """`news_s`: how long the next message about who has what is under way."""
        self.size_bytes = size_bytes
        self.link = link
        self.news_s = news_s
        self.count = count_chunks(size_bytes)
        self.now = 0.0
        self.origin = _End()
        self.origin_bytes = 0
        self.origin_takes: dict[int, int] = {}
        self.nodes: list[SimNode] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._transfers: dict[_Transfer, None] = {}
        self._sharing = False
        self._shared_at = self._advanced_at = 0.0
        self._version = 0

    @property
    def one_transfer_s(self) -> float:
        return self.size_bytes / self.link

    def length(self, index: int) -> int:
        return min(CHUNK_BYTES, self.size_bytes - index * CHUNK_BYTES)

    def add(self, at: float = 0.0, kind: str = "honest", dies_at: float | None = None) -> SimNode:
        """`kind`: honest, lies (wrong bytes), stalls (never answers) or boasts (nor has it all)."""
        node = SimNode(self, f"node-{len(self.nodes):02}", kind)
        self.nodes.append(node)
        self.at(at, node.join)
        if dies_at is not None:
            self.at(dies_at, node.die)
        return node

    def run(self, limit_s: float = 1000.0) -> None:
        """Until every honest node that lives has everything."""
        while self._events and not all(one.settled for one in self.nodes):
            self.now, _, event = heapq.heappop(self._events)
            assert self.now < limit_s, f"not done after {limit_s} s"
            event()

    def at(self, when: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(when, self.now), next(self._numbers), event))

    def after(self, delay_s: float, event: Callable[[], None]) -> None:
        self.at(self.now + delay_s, event)

    def send(self, source: _End, target: _End, size: float, done: Callable[[], None]) -> _Transfer:
        transfer = _Transfer(source, target, size, done)
        self._transfers[transfer] = None
        self._share_soon()
        return transfer

    def stop(self, transfer: _Transfer) -> None:
        if transfer in self._transfers:
            self._advance()
            del self._transfers[transfer]
            self._share_soon()

    def of(self, end: _End) -> list[_Transfer]:
        return [one for one in self._transfers if end in (one.source, one.target)]

    def _share_soon(self) -> None:
        if not self._sharing:
            self._sharing = True
            self.at(max(self.now, self._shared_at + QUANTUM_S), self._share)

    def _advance(self) -> None:
        passed_s, self._advanced_at = self.now - self._advanced_at, self.now
        for one in self._transfers:
            one.left_bytes -= one.rate * passed_s

    def _share(self) -> None:
        """Ends what has arrived, and gives every transfer its rate until the next event."""
        self._sharing = False
        self._shared_at = self.now
        self._advance()
        for one in [one for one in self._transfers if one.left_bytes < 1.0]:
            del self._transfers[one]
            one.done()
        if not self._transfers:
            return
        numbers: dict[_End, int] = {}
        sources = np.array(
            [numbers.setdefault(one.source, len(numbers)) for one in self._transfers]
        )
        targets = np.array(
            [numbers.setdefault(one.target, len(numbers)) for one in self._transfers]
        )
        rates = _rates(sources, targets, len(numbers)) * self.link
        for one, rate in zip(self._transfers, rates.tolist(), strict=True):
            one.rate = rate
        soonest_s = min(one.left_bytes / one.rate for one in self._transfers)
        self._version += 1
        self.after(max(soonest_s, QUANTUM_S), self._at_version(self._version))

    def _at_version(self, version: int) -> Callable[[], None]:
        return lambda: self._share() if version == self._version else None


def _rates(sources: Any, targets: Any, ends: int) -> Any:
    """Shares of the links, nearly max-min fair: what one end cannot use goes to others."""
    rates = np.zeros(len(sources))
    up, down = np.ones(ends), np.ones(ends)
    open_ = np.ones(len(sources))
    for _ in range(ROUNDS):
        ups = np.bincount(sources, open_, ends)
        downs = np.bincount(targets, open_, ends)
        share = np.minimum(
            (up / np.maximum(ups, 1))[sources], (down / np.maximum(downs, 1))[targets]
        )
        share *= open_
        rates += share
        up = np.maximum(up - np.bincount(sources, share, ends), 0.0)
        down = np.maximum(down - np.bincount(targets, share, ends), 0.0)
        open_ = ((up > 1e-3)[sources] & (down > 1e-3)[targets]).astype(float)
    return np.maximum(rates, 1e-4)


@dataclass(eq=False)
class _Ask:
    """A request of one node at another."""

    asker: SimNode
    step: Assignment
    have: int
    """Bitmap of the asker's chunks."""


class SimNode(_End):
    """One agent."""

    def __init__(self, cluster: Cluster, name: str, kind: str) -> None:
        super().__init__()
        self.cluster = cluster
        self.name = name
        self.kind = kind
        self.chunks = Chunks("model", cluster.count)
        self.scores = PeerScores()
        self.swarm = Swarm("key", self.chunks, name, self.scores)
        self.uploads = UploadSlots()
        self.joined_at: float | None = None
        self.done_at: float | None = None
        self.dead = False
        self.wrong = 0
        self.refused = 0
        self._under_way = 0
        self._kept = 0
        self._from_origin = 0
        self._held: dict[int, list[_Ask]] = {}
        self._waking = False
        self._told: set[SimNode] = set()
        self._told_at = -NEWS_S
        self._telling = False

    @property
    def settled(self) -> bool:
        return self.dead or self.kind != "honest" or self.done_at is not None

    @property
    def took_s(self) -> float:
        assert self.done_at is not None and self.joined_at is not None
        return self.done_at - self.joined_at

    def join(self) -> None:
        self.joined_at = self.cluster.now
        self._hello()

    def die(self) -> None:
        self.dead = True
        for transfer in self.cluster.of(self):
            self.cluster.stop(transfer)
            if transfer.target is not self:
                transfer.done()

    def _hello(self) -> None:
        if not self.dead:
            self._tell()
            self.cluster.after(HELLO_S, self._hello)

    def _tell_soon(self) -> None:
        """Tells the others, unless they were told just now."""
        if not self._telling:
            self._telling = True
            self.cluster.at(self._told_at + NEWS_S, self._tell)

    def _tell(self) -> None:
        self._telling = False
        self._told_at = self.cluster.now
        for peer in self.cluster.nodes:
            if peer is not self and not self.dead:
                self._greet(peer)
        self._settle()

    def _greet(self, peer: SimNode) -> None:
        asked = self.state_for(peer)
        self.cluster.after(self.cluster.news_s(), lambda: peer._greeted(self, asked))

    def _greeted(self, asker: SimNode, asked: PeerState) -> None:
        answer = None
        if self.joined_at is not None and not self.dead:
            self._learn(asker, asked)
            answer = self.state_for(asker)
        news_s = self.cluster.news_s()
        self.cluster.after(news_s, lambda: asker._answered(self, answer, asked.number))

    def _answered(self, peer: SimNode, answer: PeerState | None, asked: int) -> None:
        self._told.add(peer)
        if answer is not None:
            self._learn(peer, answer)
        else:
            self.swarm.forget(peer.name, self.cluster.now, asked)
        self._settle()

    def _settle(self) -> None:
        self.swarm.settled |= len(self._told) == len(self.cluster.nodes) - 1
        self.wake()

    def _learn(self, peer: SimNode, share: PeerState) -> None:
        self.swarm.receive(peer.name, share, self.cluster.now)
        self.wake()

    def state_for(self, to: SimNode) -> PeerState:
        """Who means no good takes nothing from the origin, whatever it says that it has."""
        if self.kind == "honest":
            return self.swarm.state_for(to.name)
        return PeerState(self.have)

    @property
    def have(self) -> int:
        """Bitmap of its chunks, as it says."""
        if self.kind in ("lies", "boasts"):
            return (1 << self.cluster.count) - 1
        return self.chunks.verified_bits

    def wake(self) -> None:
        if not self._waking:
            self._waking = True
            self.cluster.after(0.0, self._fill)

    def _fill(self) -> None:
        self._waking = False
        now = self.cluster.now
        # Who means no good takes nothing from the origin: what it owns has to be taken over.
        honest = self.kind == "honest" and not self.dead
        while honest and not self.chunks.complete:
            origin_free = self._from_origin < ORIGIN_REQUESTS
            step = self.swarm.next(
                now, False, origin_free, self._under_way < TRANSFERS, self._kept < WAITS
            )
            self._spread()
            if step is None:
                wakes_at = self.swarm.wakes_at(now)
                if wakes_at is not None:
                    self.cluster.at(wakes_at + 1e-6, self.wake)
                return
            if step.source == ORIGIN:
                self._fetch(step)
            else:
                self._count(step, 1)
                self._ask(step)

    def _spread(self) -> None:
        if self.swarm.changed:
            self.swarm.changed = False
            self._tell_soon()

    def _count(self, step: Assignment, change: int) -> None:
        if step.waits:
            self._kept += change
        elif step.source != ORIGIN:
            self._under_way += change

    def _fetch(self, step: Assignment) -> None:
        cluster = self.cluster
        self._from_origin += 1
        cluster.origin_takes[step.index] = cluster.origin_takes.get(step.index, 0) + 1
        cluster.origin_bytes += cluster.length(step.index)

        def done() -> None:
            self._from_origin -= 1
            self._came(step, 0.0)

        def begin() -> None:
            cluster.send(cluster.origin, self, cluster.length(step.index), done)

        cluster.after(DELAY_S, begin)

    def _ask(self, step: Assignment) -> None:
        peer = next(one for one in self.cluster.nodes if one.name == step.source)
        ask = _Ask(self, step, self.chunks.verified_bits)
        self.cluster.after(DELAY_S, lambda: peer._asked(ask))

    def _asked(self, ask: _Ask) -> None:
        if self.dead:
            ask.asker._missed(ask, Missed.STALLED, self)
        elif self.kind in ("stalls", "boasts"):
            self.cluster.after(NO_PROGRESS_S, lambda: ask.asker._missed(ask, Missed.STALLED, self))
        elif self.have >> ask.step.index & 1:
            self.swarm.note_have(ask.asker.name, ask.have)
            self._serve(ask)
        elif self.chunks.cannot(ask.step.index):
            ask.asker._missed(ask, Missed.CANNOT, self)
        elif not ask.step.urgent:
            ask.asker._missed(ask, Missed.NOT_YET, self)
        else:
            self._held.setdefault(ask.step.index, []).append(ask)
            self.cluster.after(HOLD_S, lambda: self._let_go(ask))

    def _let_go(self, ask: _Ask) -> None:
        held = self._held.get(ask.step.index, [])
        if ask in held:
            held.remove(ask)
            ask.asker._missed(ask, Missed.STALLED if self.dead else Missed.NOT_YET, self)

    def _serve(self, ask: _Ask) -> None:
        if ask.asker.dead:
            return
        index = ask.step.index
        retry_s = self.uploads.begin()
        if retry_s is not None:
            self.refused += 1
            if not self.chunks.complete:
                ask.asker.swarm.add_hints(index, self.swarm.other_holders(index, ask.asker.name))
            ask.asker._missed(ask, Missed.BUSY, self, retry_s)
            return
        began, have = self.cluster.now, self.have

        def done() -> None:
            self.uploads.end(self.cluster.now - began)
            if self.dead:
                ask.asker._missed(ask, Missed.STALLED, self)
            elif self.kind == "lies":
                ask.asker.wrong += 1
                ask.asker._missed(ask, Missed.CORRUPT, self)
            elif not ask.asker.dead:
                self.swarm.note_have(ask.asker.name, 1 << index)
                ask.asker.swarm.note_have(self.name, have)
                ask.asker._came(ask.step, self.cluster.now - began)

        self.cluster.send(self, ask.asker, self.cluster.length(index), done)

    def _missed(self, ask: _Ask, why: Missed, peer: SimNode, retry_s: float = 0.0) -> None:
        self._count(ask.step, -1)
        error = self.swarm.missed(ask.step, why, self.cluster.now, retry_s)
        assert error is None, error
        if why in (Missed.NOT_YET, Missed.BUSY):
            self.swarm.note_have(peer.name, peer.have)
        self.wake()

    def _came(self, step: Assignment, took_s: float) -> None:
        self._count(step, -1)
        self.swarm.verified(step, took_s, self.cluster.now)
        if self.chunks.complete:
            self.done_at = self.cluster.now
        self._spread()
        for ask in self._held.pop(step.index, []):
            self._serve(ask)
        self.wake()
