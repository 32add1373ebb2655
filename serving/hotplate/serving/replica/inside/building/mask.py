"""Hides texts in what a program prints: they stand in it as `***`; pure.

Python >= 3.9, standard library only.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from urllib.parse import quote

MASK = b"***"
LINE_BYTES = 8
"""The least that is masked of a value that has lines: so long a part is no accident."""
PIECE_BYTES = 1024
"""Longer values are masked piece by piece."""
HELD_BYTES = 256 << 10
"""The most that waits for what comes next: a value is never longer than its pieces."""


class Mask:
    """Replaces texts in a stream of bytes, wherever that is cut; pure."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = sorted({piece for text in texts for piece in _pieces(text)})
        self._longest = max(map(len, self._texts), default=0)
        short = [text for text in self._texts if len(text) < LINE_BYTES]
        words = b"|".join(map(re.escape, sorted(short, key=len, reverse=True)))
        # Looking ahead, so that those that overlap are found too.
        self._short = re.compile(b"(?=(" + words + b"))") if short else None
        self._long: dict[bytes, list[bytes]] = {}
        for text in self._texts:
            if len(text) >= LINE_BYTES:
                self._long.setdefault(text[:LINE_BYTES], []).append(text)
        self._held = b""
        self._spans: list[tuple[int, int]] = []
        """Where texts stand in what is held; in order, and those that overlap as one."""

    def feed(self, data: bytes) -> bytes:
        """What may be shown after these further bytes; the end waits where a text may begin."""
        self._look_for_texts_in(data)
        end = self._beginning()
        for begin, after in reversed(self._spans):
            if after <= end:
                break
            end = min(begin, end)
        if len(self._held) - end > HELD_BYTES:
            end = len(self._held)
        return self._shown(end)

    def rest(self) -> bytes:
        """What may be shown of the end."""
        return self._shown(len(self._held))

    def _shown(self, end: int) -> bytes:
        shown, at = [], 0
        for begin, after in self._spans:
            if after <= end:
                shown += [self._held[at:begin], MASK]
                at = after
        shown.append(self._held[at:end])
        self._held = self._held[end:]
        self._spans = [(begin - end, after - end) for begin, after in self._spans if after > end]
        return b"".join(shown)

    def _look_for_texts_in(self, data: bytes) -> None:
        """Only where a text may end in the new data: all that is held may be long."""
        first = max(0, len(self._held) - self._longest + 1)
        self._held += data
        while self._spans and self._spans[-1][0] >= first:
            self._spans.pop()  # they are found again
        for begin, after in sorted(self._found(first)):
            if self._spans and begin < self._spans[-1][1]:
                earlier, end = self._spans.pop()
                begin, after = earlier, max(end, after)
            self._spans.append((begin, after))

    def _found(self, first: int) -> Iterator[tuple[int, int]]:
        held = self._held
        if self._short is not None:
            for match in self._short.finditer(held, first):
                yield match.span(1)
        if self._long:
            for begin in range(first, len(held) - LINE_BYTES + 1):
                for text in self._long.get(held[begin : begin + LINE_BYTES], ()):
                    if held.startswith(text, begin):
                        yield begin, begin + len(text)

    def _beginning(self) -> int:
        """From where on the end may be the beginning of a text."""
        for begin in range(max(0, len(self._held) - self._longest + 1), len(self._held)):
            end = self._held[begin:]
            at = bisect_left(self._texts, end)
            for text in self._texts[at : at + 2]:
                if len(text) > len(end) and text.startswith(end):
                    return begin
        return len(self._held)


def _pieces(text: str) -> Iterator[bytes]:
    """As what a value may stand in a log: whole, as a part of a URL, and line by line."""
    for whole in {text.strip("\r\n"), quote(text, safe="")}:
        lines = [whole, *(line for line in whole.splitlines() if len(line) >= LINE_BYTES)]
        for line in map(str.encode, lines):
            for begin in range(0, len(line), PIECE_BYTES):
                piece = line[begin : begin + PIECE_BYTES]
                if len(line) <= PIECE_BYTES or len(piece) >= LINE_BYTES:
                    yield piece
