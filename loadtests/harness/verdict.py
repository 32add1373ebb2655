"""What a storm found: its figures, and the guarantees that did not hold."""

from __future__ import annotations

from dataclasses import dataclass, field

from loadtests.harness.report import Row


@dataclass
class Verdict:
    """One run. It has passed when nothing is broken."""

    figures: dict[str, object] = field(default_factory=dict)
    """Name with its unit → value, in the order in which they are shown."""
    broken: list[str] = field(default_factory=list)
    """One sentence per guarantee that did not hold: what was expected, what was seen, where."""
    rows: list[Row] = field(default_factory=list)
    """Of a table, where the same was tried in several ways."""

    def expect(self, holds: bool, otherwise: str) -> None:
        """A guarantee that is broken where it does not hold; `otherwise` is its sentence."""
        if not holds:
            self.broken.append(otherwise)
