"""What the replicas of each version have answered, by kind; plain integers, counted per request.

The counts are the version's and not a replica's, so they stay while its replicas come and go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

BROKEN: Final = 4
"""The index of the last of the protocol's `ANSWER_KINDS`; before it stand 2xx to 5xx."""
NO_KIND: Final = -1
"""Of a 101: what follows it is no response, and how it ends says nothing."""
KEPT: Final = 8
"""Versions without a replica whose counts are kept; those of earlier ones are forgotten."""

Counts = list[int]
"""One number per kind."""


def kind_of(status: int) -> int:
    """The index of the status' kind."""
    return min(status // 100 - 2, BROKEN - 1) if status >= 200 else NO_KIND


class VersionAnswers:
    """The counts of one route."""

    def __init__(self) -> None:
        self._counts: dict[str, Counts] = {}
        """By version; those that the table named last are the last ones."""

    def of(self, version: str) -> Counts | None:
        """Where a replica's answers are counted; None = they are not."""
        return self._counts.setdefault(version, [0] * (BROKEN + 1)) if version else None

    def keep(self, versions: Iterable[str]) -> None:
        """The table names these versions. Forgets what is much older."""
        for version in versions:
            if version in self._counts:
                self._counts[version] = self._counts.pop(version)
        named = set(versions)
        for version in [v for v in self._counts if v not in named][:-KEPT]:
            del self._counts[version]

    def totals(self) -> dict[str, tuple[int, int]]:
        """Per version, how many answers were whole, and how many of those were 5xx."""
        return {
            version: (sum(counts[:BROKEN]), counts[BROKEN - 1])
            for version, counts in self._counts.items()
        }

    def by_kind(self, kinds: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        """Per version and kind, by the kinds' names; what is 0 is left out."""
        return {
            version: {kind: n for kind, n in zip(kinds, counts, strict=True) if n}
            for version, counts in self._counts.items()
            if any(counts)
        }
