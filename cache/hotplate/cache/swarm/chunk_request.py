"""What a fetcher asks of peers, and how they answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hotplate.cache.swarm.assignment import Missed


@dataclass(frozen=True)
class ChunkRequest:
    """A request for a chunk."""

    key: str
    index: int
    digest: str = ""
    """The one that it is to have; "" where the asker knows none."""
    urgent: bool = False
    """A reader waits for it."""
    asker: str = ""
    have: int = 0
    """Bitmap of what the asker has of the content."""
    word: bool = False
    """Only the digests are asked for: of this chunk, and of the next ones."""


@dataclass(frozen=True)
class ChunkResponse:
    """How a request for a chunk went."""

    missed: Missed | None
    """None: the chunk's bytes are here, not yet verified."""
    have: int = 0
    """Bitmap of what the peer has of the content, as it says."""
    digest: str = ""
    """The chunk's digest, as the peer says; and of the next ones, with commas, where only they were
    asked for."""
    retry_s: float = 0.0
    others: tuple[str, ...] = ()
    """Who else has the chunk, as a peer says that has no slot for it."""
    body_bytes: int = 0
    """Bytes of the chunk that came, whole or not."""


@dataclass(frozen=True)
class ChunkOffer:
    """A chunk that can be sent to a peer, or why not."""

    missed: Missed | None = None
    have: int = 0
    """Bitmap of what this node has of the content."""
    digest: str = ""
    data: memoryview | None = None


class PendingResponse(Protocol):
    """A peer is being asked for a chunk. Of one thread."""

    def read(
        self, view: memoryview, prepare: Callable[[], None], patience_s: float
    ) -> ChunkResponse:
        """Fills `view` with what the peer answers; never raises for what it does.

        `prepare` makes room for it while the answer is on its way, and may raise CacheError, which
        is raised here.
        """


class Peers(Protocol):
    """The other agents, for a fetcher's threads; thread-safe."""

    @property
    def me(self) -> str:
        """This node's own id among them."""

    def ask(self, peer: str, ask: ChunkRequest) -> PendingResponse | None:
        """Asks a peer for a chunk; None if it has gone."""
