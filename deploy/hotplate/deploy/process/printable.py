"""Text of programs that we do not trust, made harmless for terminals, pages and databases."""

from __future__ import annotations

import re

MOST_CHARS = 32_000
"""Of one line of a log."""

_CODES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, and what moves the cursor
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # titles, links, the clipboard
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    r"|[\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # what shows text in another order than it has
    r"|[\ud800-\udfff]"  # half a character
)


def printable(text: str) -> str:
    """Without what a terminal takes for a command; lines and tabs stay."""
    return _CODES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
