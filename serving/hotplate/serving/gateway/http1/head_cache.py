"""Heads that have been read already: the same bytes mean the same again. Pure.

A caller on a kept connection sends one head again and again, and a replica answers with one; to
read it is most of what a small request costs here. What was refused is never remembered.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Head = TypeVar("Head")

HEAD_END = b"\r\n\r\n"
MOST = 512
"""Heads; with one more it starts anew, so that those which never come back cost little."""
LONGEST_BYTES = 2048


class HeadCache(Generic[Head]):
    """What each head was read as."""

    def __init__(self) -> None:
        self._heads: dict[bytes, Head] = {}
        self._newest: Head | None = None
        """Whose `newest_raw` is: the one that was found last is likely to come again."""
        self.newest_raw = b""

    def __len__(self) -> int:
        return len(self._heads)

    def get(self, raw: bytes) -> Head | None:
        return self._heads.get(raw)

    def begins(self, data: bytes) -> Head | None:
        """The head that the data begins with, if it is known; `newest_raw` has its bytes then."""
        newest = self._newest
        if newest is not None and data.startswith(self.newest_raw):
            return newest
        raw = data[: data.find(HEAD_END) + len(HEAD_END)]
        head = self._heads.get(raw)
        if head is not None:
            self._newest, self.newest_raw = head, raw
        return head

    def put(self, raw: bytes, head: Head) -> None:
        """Remembers it, if it is short enough to be worth it."""
        if len(raw) <= LONGEST_BYTES:
            if len(self._heads) >= MOST:
                self._heads.clear()
            self._heads[raw] = head
