"""A page's text without its markup and headings, in passages of some sentences."""

from __future__ import annotations

import re
from html.parser import HTMLParser

WORDS = 40
"""The most words of a passage, unless it is one longer sentence."""
UNSEEN = {"script", "style", "head", "h1", "h2", "h3", "h4"}
BLOCKS = {"p", "div", "li", "br", "tr", "td", "section"}


def passages_of(page: str) -> list[str]:
    """The passages in the page's order; each lies within one paragraph."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    paragraphs = (" ".join(part.split()) for part in "".join(reader.parts).split("\0"))
    return [passage for paragraph in paragraphs for passage in _split(paragraph)]


def _split(paragraph: str) -> list[str]:
    passages: list[str] = []
    for sentence in filter(None, re.split(r"(?<=[.!?])\s+", paragraph)):
        longer = f"{passages[-1]} {sentence}" if passages else ""
        if longer and len(longer.split()) <= WORDS:
            passages[-1] = longer
        else:
            passages.append(sentence)
    return passages


class _Reader(HTMLParser):
    """Collects text; NUL stands where a paragraph ends."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._unseen = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._unseen += tag in UNSEEN
        if tag in BLOCKS:
            self.parts.append("\0")

    def handle_endtag(self, tag: str) -> None:
        self._unseen = max(0, self._unseen - (tag in UNSEEN))
        if tag in BLOCKS:
            self.parts.append("\0")

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.parts.append(data.replace("\0", " "))
