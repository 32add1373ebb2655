"""Text of programs that we do not trust, made harmless for terminals, pages and databases."""

from __future__ import annotations

import re

MOST_CHARS = 32_000
"""Of one line of a log."""

_COLOURS = re.compile(r"\x1b\[[\d;:]*m")
_SYMBOLS = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"} | {0x7F: 0x2421}
"""A code that a terminal takes for a command, and the picture that Unicode has of it."""
_HIDDEN = re.compile(
    r"[\x80-\x9f]"  # the same codes, of eight bits: they have no picture
    r"|[\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # what shows text in another order than it has
    r"|[\ud800-\udfff]"  # half a character
)


def printable(text: str) -> str:
    """With symbols for what a terminal takes for a command (`␛[2J`), and without colours; lines
    and tabs stay."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _HIDDEN.sub("", _COLOURS.sub("", lines)).translate(_SYMBOLS)
