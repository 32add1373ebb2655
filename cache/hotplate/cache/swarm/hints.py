"""Which chunks a peer has according to other peers: a hint, so each is followed at most once."""

from __future__ import annotations

from collections.abc import Collection, Iterable


class Hints:
    """The chunks that peers have according to others. Pure."""

    def __init__(self) -> None:
        self._chunks: dict[str, int] = {}  # bitmaps by peer

    def add(self, index: int, peers: Iterable[str]) -> None:
        """According to another peer, these have the chunk."""
        for peer in peers:
            self._chunks[peer] = self._chunks.get(peer, 0) | 1 << index

    def use(self, index: int, peer: str) -> None:
        """The peer is being asked for the chunk."""
        if peer in self._chunks:
            self._chunks[peer] &= ~(1 << index)

    def chunks(self, peers: Collection[str]) -> int:
        """Bitmap of the chunks that hints name for any of these peers."""
        found = 0
        for peer, chunks in self._chunks.items():
            if peer in peers:
                found |= chunks
        return found

    def peers(self, index: int) -> list[str]:
        """The peers that hints name for the chunk."""
        return [peer for peer, chunks in self._chunks.items() if chunks >> index & 1]
