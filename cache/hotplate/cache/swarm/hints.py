"""What others say that a peer has: hearsay, so each is asked at most once on the strength of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable


class Hints:
    """The chunks that peers are said to have. Pure."""

    def __init__(self) -> None:
        self._chunks: dict[str, int] = {}  # bitmaps by peer

    def add(self, index: int, peers: Iterable[str]) -> None:
        """Somebody says that these have the chunk."""
        for peer in peers:
            self._chunks[peer] = self._chunks.get(peer, 0) | 1 << index

    def use(self, index: int, peer: str) -> None:
        """The peer is being asked for the chunk."""
        if peer in self._chunks:
            self._chunks[peer] &= ~(1 << index)

    def chunks(self, peers: Collection[str]) -> int:
        """Bitmap of what any of these is said to have."""
        found = 0
        for peer, chunks in self._chunks.items():
            if peer in peers:
                found |= chunks
        return found

    def peers(self, index: int) -> list[str]:
        """Those that are said to have the chunk."""
        return [peer for peer, chunks in self._chunks.items() if chunks >> index & 1]
