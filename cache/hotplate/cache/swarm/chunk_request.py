"""What a fetcher asks of peers, and what they respond."""

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
    """The digest that the chunk is to have; "" where the asker knows none."""
    urgent: bool = False
    """A reader waits for it."""
    asker: str = ""
    have: int = 0
    """Bitmap of the chunks that the asker has."""
    digests_only: bool = False
    """Whether only digests are asked for: of this chunk, and of the next ones."""


@dataclass(frozen=True)
class ChunkResponse:
    """How a request for a chunk went."""

    missed: Missed | None
    """None: the chunk's bytes are here, not yet verified."""
    have: int = 0
    """Bitmap of the chunks that the peer has, by its own account."""
    digest: str = ""
    """The chunk's digest, as the peer attests it; where only digests were asked for, those of the
    next chunks too, separated by commas."""
    retry_s: float = 0.0
    others: tuple[str, ...] = ()
    """Other peers that have the chunk, according to one that has no upload slot."""
    body_bytes: int = 0
    """Bytes of the chunk that came, be they all or not."""
    took_s: float = 0.0
    """How long the request took, from its sending to its last byte."""


@dataclass(frozen=True)
class ChunkOffer:
    """A chunk that can be sent to a peer, or why not."""

    missed: Missed | None = None
    have: int = 0
    """Bitmap of the chunks that this node has."""
    digest: str = ""
    data: memoryview | None = None


class PendingResponse(Protocol):
    """A request for a chunk that is under way. For one thread."""

    def read(
        self, view: memoryview, prepare: Callable[[], None], patience_s: float
    ) -> ChunkResponse:
        """Fills `view` with the chunk; raises nothing for what the peer does.

        `prepare` makes room for it while the response is on its way; its CacheError is raised here.
        """


class Peers(Protocol):
    """The other agents, for a fetcher's threads; thread-safe."""

    @property
    def me(self) -> str:
        """This node's own id among them."""

    def ask(self, peer: str, request: ChunkRequest) -> PendingResponse | None:
        """Asks a peer for a chunk; None if it is gone."""
