"""One file's content on its way here: where it comes from, where it goes, whom it is told to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from hotplate.cache.errors import CacheError
from hotplate.cache.fetching.traffic import Traffic
from hotplate.cache.manifest import Blob, Content
from hotplate.cache.origins.blob_source import Source
from hotplate.cache.swarm.chunk_picker import Swarm
from hotplate.cache.swarm.chunks import Chunks

SMALL_BYTES = 1 << 20
"""Files up to this size take no longer than to ask for them, also where the origin is slow."""


class Destination(Protocol):
    """Where a blob's bytes are put."""

    @property
    def view(self) -> memoryview: ...

    def reserve(self, offset: int, length: int) -> None:
        """Makes room for that part before it is written. Raises NoSpace."""


class LocalCopy(Protocol):
    """A copy on this node, some or all of whose chunks are right."""

    def take(self, index: int, destination: Destination) -> bool:
        """Puts a chunk in its place and verifies it; False where this copy has it not.

        Raises CacheError where that could not be told.
        """


@dataclass(eq=False)
class Fetch:
    """One file's content on its way into `destination`."""

    key: str
    content: Content
    origin: Source
    chunks: Chunks
    destination: Destination
    on_verified: Callable[[int], None]
    on_failed: Callable[[CacheError], None]
    urgent: bool = False
    """Files that hold up a whole tree go before those that are usable while they arrive."""
    local: LocalCopy | None = None
    traffic: Traffic = field(default_factory=Traffic)
    arrival: int = field(default=0, init=False)
    swarm: Swarm = field(init=False)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What it is found by: its key, and its digest where that is known."""
        return (self.key, self.content.digest) if isinstance(self.content, Blob) else (self.key,)

    @property
    def small(self) -> bool:
        return self.content.size_bytes <= SMALL_BYTES

    @property
    def rank(self) -> tuple[bool, bool, int]:
        return (not self.urgent, not self.small, self.arrival)
