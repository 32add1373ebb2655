"""One file's content on its way here: where it comes from, where it goes, how it is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from hotplate.cache.errors import CacheError
from hotplate.cache.fetching.monitor import Monitor
from hotplate.cache.fetching.traffic import Traffic
from hotplate.cache.manifest import Blob, Content
from hotplate.cache.origins.blob_source import ByteSource
from hotplate.cache.swarm.assignment import Assignment, Missed
from hotplate.cache.swarm.chunk_picker import ChunkPicker
from hotplate.cache.swarm.chunk_request import ChunkOffer, ChunkRequest, ChunkResponse
from hotplate.cache.swarm.chunks import Chunks
from hotplate.cache.swarm.participants import PeerState

SMALL_BYTES = 1 << 20
"""Files up to this size take no longer than to ask for them, also where the origin is slow."""


class ChunkDestination(Protocol):
    """Where a blob's bytes are put."""

    @property
    def view(self) -> memoryview:
        """What is in its place, to be read."""

    def reserve(self, offset: int, length: int) -> None:
        """Makes room for that part before it is written. Raises NoSpace."""

    def part(self, offset: int, length: int) -> memoryview:
        """Memory that this thread fills with that part: its place, or one that is this thread's
        until it asks for another part. Raises CacheError."""

    def put(self, offset: int, part: memoryview) -> None:
        """Has what was filled, and is right, in its place. Raises CacheError."""


class LocalCopy(Protocol):
    """A copy on this node, some or all of whose chunks are right."""

    def take(self, index: int, destination: ChunkDestination) -> bool:
        """Puts a chunk in its place and verifies it; False where this copy lacks it.

        Raises CacheError where that could not be found out.
        """


@dataclass(frozen=True, kw_only=True)
class FetchOrder:
    """What is to be fetched, and how it is reported."""

    key: str
    """What peers know the content by."""
    content: Content
    origin: ByteSource
    chunks: Chunks
    destination: ChunkDestination
    on_verified: Callable[[int], None]
    """Called on a fetching thread with each chunk that is in its place."""
    on_failed: Callable[[CacheError], None]
    """Called on a fetching thread, once, if the content cannot be had."""
    urgent: bool = False
    """Files that hold up a whole tree go before those that are usable while they arrive."""
    local: LocalCopy | None = None
    traffic: Traffic = field(default_factory=Traffic)


class Fetch:
    """One content on its way into its destination. Thread-safe, except for `picker` and `state`.

    Made by `Contents.begin`.
    """

    def __init__(
        self, order: FetchOrder, picker: ChunkPicker, arrival: int, monitor: Monitor
    ) -> None:
        """`arrival`: its number among all that this node has begun."""
        self.order = order
        self.key = order.key
        self.content = order.content
        self.chunks = order.chunks
        self.destination = order.destination
        self.picker = picker
        self.state = picker.state
        """Both to be used by `Contents` only, under its lock."""
        self.answered_by: set[str] = set()
        """Addresses of the agents that have given their state of this content; as `picker`."""
        self.ended = False
        """Whether nothing more of it is brought."""
        self._arrival = arrival
        self._monitor = monitor

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names that it is found by: its key, and its digest where that is known."""
        return (self.key, self.content.digest) if isinstance(self.content, Blob) else (self.key,)

    @property
    def small(self) -> bool:
        return self.content.size_bytes <= SMALL_BYTES

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """The lowest is fetched first."""
        return (not self.order.urgent, not self.small, self._arrival)

    # For readers

    def want(self, indices: Iterable[int]) -> None:
        """A reader waits for these chunks: they come before all others."""
        with self._monitor.work:
            self.chunks.want(indices)
            self._monitor.work.notify()

    def take_whole(self) -> None:
        """From now on brings all of it, not only what readers want."""
        with self._monitor.work:
            self.chunks.whole = True
            self._monitor.work.notify()

    def stalls_at(self) -> float | None:
        """When it will have gone without progress for too long; None: nothing is under way."""
        with self._monitor.work:
            return self.chunks.stalls_at()

    # For the threads that bring it

    def progressed(self, index: int, got_bytes: int, now: float) -> None:
        """`got_bytes` of a chunk under way are here."""
        with self._monitor.work:
            self.chunks.received(index, got_bytes, now)

    def damaged(self, step: Assignment) -> None:
        """The copy on this node's disk lacks the chunk, or has it wrong."""
        with self._monitor.work:
            self.picker.damaged(step)

    # For peers

    def state_for(self, peer: str) -> PeerState:
        """The next message to a peer about this content."""
        with self._monitor.work:
            return self.state.state_for(peer)

    def note_have(self, peer: str, have: int) -> None:
        """A peer has these chunks (a bitmap): it said so with a request, or got them from us."""
        with self._monitor.work:
            self.state.note_have(peer, have)

    def other_holders(self, index: int, asker: str) -> list[str]:
        """Some peers that have the chunk, other than the asker."""
        with self._monitor.work:
            return self.state.other_holders(index, asker)

    def digests(self, first: int, count: int) -> list[str]:
        """The digests of `count` chunks from the first on; "" for each that is not known."""
        with self._monitor.work:
            return list(self.content.chunks[first : first + count])

    def wait_for_chunk(
        self, request: ChunkRequest, until: float, clock: Callable[[], float]
    ) -> ChunkOffer | None:
        """The chunk that a peer asks for, or why not; None when the fetch has ended meanwhile.

        `until` is the time by `clock` up to which the chunk is waited for.
        """
        with self._monitor.arrived:
            if self.ended:
                return None
            self.state.note_have(request.asker, request.have)
            index, chunks = request.index, self.chunks
            if request.urgent and chunks.whole and not chunks.verified_bits >> index & 1:
                self.want([index])
            while not chunks.verified_bits >> index & 1:
                if self.ended:
                    return None
                if not 0 <= index < chunks.count:
                    return ChunkOffer(Missed.LACKS)
                if chunks.cannot(index) or not chunks.awaited(index):
                    return ChunkOffer(Missed.CANNOT, chunks.verified_bits)
                remaining_s = until - clock()
                if remaining_s <= 0:
                    return ChunkOffer(Missed.NOT_YET, chunks.verified_bits)
                self._monitor.arrived.wait(remaining_s)
            offset, length = self.content.span(index)
            data = self.destination.view[offset : offset + length]
            return ChunkOffer(None, chunks.verified_bits, self.content.chunks[index], data)

    # The digests of a draft that peers attest

    def witnesses(self, step: Assignment, now: float) -> list[str]:
        """Other peers to ask before the digest of a chunk is accepted from the peer that gave
        it."""
        with self._monitor.work:
            return self.picker.witnesses(step, now)

    def accept(self, step: Assignment, digest: str, now: float) -> bool:
        """Whether no other peer contradicts the one that gave the chunk."""
        with self._monitor.work:
            return self.state.attestations.accept(step.index, step.source, digest, now)

    def has_attested(self, peer: str, index: int) -> bool:
        """Whether the peer has attested that chunk's digest."""
        with self._monitor.work:
            return self.state.attestations.has_attested(peer, index)

    def record_digests(self, peer: str, index: int, response: ChunkResponse, now: float) -> bool:
        """A peer attests the digests of a chunk and the next ones; whether it knew that chunk's."""
        with self._monitor.work:
            attestations = self.state.attestations
            if response.missed is Missed.STALLED:
                attestations.unanswered(peer, now)
            attestations.record(peer, index, response.digest.split(","), now)
            return attestations.has_attested(peer, index)

    def resolve(self, index: int, digest: str, now: float) -> tuple[set[str], list[int]]:
        """The origin's own bytes have that digest. The peers that attested another one, banned from
        now on, and the chunks that were accepted on their attestation alone."""
        with self._monitor.work:
            return self.state.attestations.resolve(index, digest, now)
