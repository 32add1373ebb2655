"""Heads that have been read already: the same bytes mean the same again. Pure.

A caller on a kept connection sends one head again and again, and a replica answers with one; to
read it is most of what a small request costs here. What was refused is never remembered.
"""

from __future__ import annotations

from typing import TypeVar

Head = TypeVar("Head")

MOST = 512
"""Heads; with one more it starts anew, so that those which never come back cost little."""
LONGEST_BYTES = 2048


class HeadMemo(dict[bytes, Head]):
    """What each head was read as."""

    def put(self, raw: bytes, head: Head) -> None:
        """Remembers it, if it is short enough to be worth it."""
        if len(raw) <= LONGEST_BYTES:
            if len(self) >= MOST:
                self.clear()
            self[raw] = head
