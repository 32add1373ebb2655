"""Upload slots: how many chunks a node sends at a time, and when to ask again."""

from __future__ import annotations

UPLOAD_SLOTS = 4
"""Chunks sent at once: as many as a node takes at once (`TRANSFERS`). Few, so that each arrives
soon and is sent on from there."""

_FIRST_RETRY_S = 0.02
_LAST_RETRY_S = 1.0
_USUAL_WEIGHT = 0.2


class UploadSlots:
    """Counts what is being sent. No clock: callers say how long each took."""

    def __init__(self, slots: int = UPLOAD_SLOTS) -> None:
        self.slots = slots
        self.sending = 0
        self._usual_s = 0.0

    def begin(self) -> float | None:
        """None: the chunk may be sent, and `end` is to be called. Otherwise the seconds to wait."""
        if self.sending < self.slots:
            self.sending += 1
            return None
        # One slot comes free about that often.
        return min(max(self._usual_s / self.slots, _FIRST_RETRY_S), _LAST_RETRY_S)

    def end(self, took_s: float) -> None:
        self.sending -= 1
        self._usual_s += _USUAL_WEIGHT * (took_s - self._usual_s)
