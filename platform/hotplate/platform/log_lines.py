"""The end of a log that is looked at again and again; pure."""

from __future__ import annotations

from collections.abc import Sequence


def fresh(before: Sequence[str], after: Sequence[str]) -> Sequence[str]:
    """The lines that `after` has at its end beyond `before`; both are the last lines of a log."""
    for known in range(min(len(before), len(after)), 0, -1):
        if list(before[-known:]) == list(after[:known]):
            return after[known:]
    return after
