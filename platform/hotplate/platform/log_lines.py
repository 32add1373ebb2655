"""The end of a log that is looked at again and again; pure."""

from __future__ import annotations

from collections.abc import Sequence


def fresh(before: Sequence[str], after: Sequence[str]) -> Sequence[str]:
    """What has come at the end of `after` since `before`; both are the last lines of a log."""
    for known in range(min(len(before), len(after)), 0, -1):
        if list(before[-known:]) == list(after[:known]):
            return after[known:]
    return after
