"""The "did you mean": which of the names that exist a mistyped one is most like."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(value: str, choices: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """The choice that is most like `value`; None where none is.

    `likeness`: from 0 to 1 (equal), what a choice needs at least; see difflib's `cutoff`.
    """
    found = get_close_matches(value, list(choices), n=1, cutoff=likeness)
    return found[0] if found else None
