"""How many chunks of a content, and which, are on their way from the origin at a time. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hotplate.cache.swarm.bitmap import first

_WINDOW_SHARE = 1 / 16
_WINDOW_MIN, _WINDOW_MAX = 8, 32
"""Chunks on their way from the origin, in the whole cluster, as a share of all. They are few, so
that each leaves the origin soon and travels on while the next ones come: the last chunks reach all
nodes later by about this number. They are many enough to fill the origin's link, although each
comes by a node's link that carries chunks from peers too, and although connections may be slow."""
WINDOW_FIRST = 2
"""The window before any chunk has come: as long as there is none to pass on, all links but the
origin's are idle."""


@dataclass(frozen=True)
class Due:
    """The chunks to be fetched from the origin now: the first that are nowhere else."""

    chunks: int
    """Bitmap of these chunks."""
    last: int
    """The last of them; every chunk before it should be elsewhere already."""

    def __contains__(self, index: int) -> bool:
        """Whether the chunk is due from the origin now, or was due before."""
        return index <= self.last


class OriginWindow:
    """The window of one content."""

    def __init__(self, count: int) -> None:
        """`count` is that of the content's chunks."""
        self.size = min(max(_WINDOW_MIN, int(count * _WINDOW_SHARE)), _WINDOW_MAX)
        """How many chunks are on their way from the origin at most."""
        self._count = count

    def due(self, elsewhere: int, *, alone: bool) -> Due:
        """What is due while the chunks of the bitmap `elsewhere` need no fetch from the origin.

        `alone`: there is no other participant. Otherwise the window is small at first, so that soon
        there is a chunk to pass on, and then as large as the number of chunks that are elsewhere.
        """
        remaining = ~elsewhere & ((1 << self._count) - 1)
        done = self._count - remaining.bit_count()
        size = self.size if alone else min(max(WINDOW_FIRST, done), self.size)
        chunks = first(remaining, size)
        return Due(chunks, chunks.bit_length() - 1 if chunks != remaining else self._count)
