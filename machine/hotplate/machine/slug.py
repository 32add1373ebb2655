"""Names that are good in a host name, made of any text; pure."""

from __future__ import annotations

import re

from blake3 import blake3

_ENDING_LENGTH = 8


def slug(text: str, most: int) -> str:
    """A name of at most `most` characters, lower case, with `-` for each run of others. Texts that
    differ in more than case have different ones: where something else was lost, it ends with a
    digest of the text."""
    plain = _plain(text)
    if plain == text.lower() and 0 < len(plain) <= most:
        return plain
    return _with_ending(plain, text, most)


def digested_slug(text: str, most: int) -> str:
    """The same with its digest in any case."""
    return _with_ending(_plain(text), text, most)


def _plain(text: str) -> str:
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")


def _with_ending(plain: str, text: str, most: int) -> str:
    digest = blake3(text.encode()).hexdigest()[:_ENDING_LENGTH]
    kept = plain[: most - _ENDING_LENGTH - 1].rstrip("-")
    return f"{kept}-{digest}" if kept else digest
