"""How long a replica that ended by itself waits before it starts again."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class BackoffSettings:
    """The pauses between attempts."""

    first_s: float = 1.0
    """The first pause; each further failure doubles it."""
    max_s: float = 60.0
    """Longest pause: a service that is repaired is back within a minute."""
    reset_after_s: float = 60.0
    """Ready for this long, and earlier failures are forgotten."""
    without_pause: int = 0
    """Failures in a row after which it starts again at once."""


@dataclass(frozen=True)
class Backoff:
    """Failures in a row of one replica."""

    settings: BackoffSettings = BackoffSettings()
    failures: int = 0

    def failed(self, ready_for_s: float) -> tuple[Backoff, float]:
        """Count one more failure after `ready_for_s` of being ready; and seconds to wait."""
        forgiven = ready_for_s >= self.settings.reset_after_s
        before = 0 if forgiven else self.failures
        counted = replace(self, failures=before + 1)
        doublings = before - self.settings.without_pause
        if doublings < 0:
            return counted, 0.0
        doublings = min(doublings, 30)  # keeps the power finite in a replica that fails for weeks
        return counted, min(self.settings.first_s * 2**doublings, self.settings.max_s)
