"""Heads that have been read already: the same bytes mean the same again. Pure.

A caller on a kept connection sends the same head again and again, and a replica responds with the
same head; to read it is most of the cost of a small request here. A head that was refused is never
kept.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Head = TypeVar("Head")

HEAD_END = b"\r\n\r\n"
MOST = 512
"""Limit of heads; at one more the cache is emptied, so that heads that never come back cost
little."""
LONGEST_BYTES = 2048


class HeadCache(Generic[Head]):
    """The result of reading each head."""

    def __init__(self) -> None:
        self._heads: dict[bytes, Head] = {}
        self._newest: Head | None = None
        """The head of `newest_raw`, the last one that was found: it is likely to come again."""
        self.newest_raw = b""

    def __len__(self) -> int:
        return len(self._heads)

    def get(self, raw: bytes) -> Head | None:
        return self._heads.get(raw)

    def begins(self, data: bytes) -> Head | None:
        """The head that the data begins with, if it is known; `newest_raw` are its bytes then."""
        newest = self._newest
        if newest is not None and data.startswith(self.newest_raw):
            return newest
        raw = data[: data.find(HEAD_END) + len(HEAD_END)]
        head = self._heads.get(raw)
        if head is not None:
            self._newest, self.newest_raw = head, raw
        return head

    def put(self, raw: bytes, head: Head) -> None:
        """Keeps the head, if it is short enough."""
        if len(raw) <= LONGEST_BYTES:
            if len(self._heads) >= MOST:
                self._heads.clear()
            self._heads[raw] = head
