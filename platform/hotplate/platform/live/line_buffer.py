"""Lines of text that comes in pieces; pure."""

from __future__ import annotations

LINE_CHARS = 16 << 10
"""What is longer is told in lines of so many characters."""


class LineBuffer:
    def __init__(self) -> None:
        self._rest = ""

    def add(self, piece: str) -> list[str]:
        """The lines that are whole now."""
        *lines, self._rest = (self._rest + piece).split("\n")
        if len(self._rest) > LINE_CHARS:
            lines, self._rest = [*lines, self._rest], ""
        return [part for line in lines for part in _parts(line.removesuffix("\r"))]

    def end(self) -> list[str]:
        """The last line, if nothing ended it."""
        return self.add("\n") if self._rest else []


def _parts(line: str) -> list[str]:
    starts = range(0, max(1, len(line)), LINE_CHARS)
    return [line[start : start + LINE_CHARS] for start in starts]
