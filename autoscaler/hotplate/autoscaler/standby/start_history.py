"""The starts on one instance type during seven days, with one bucket for each day."""

from __future__ import annotations

import math
import statistics
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hotplate.autoscaler.errors import MemoryInvalid

DAY_S = 86400.0
DAYS = 7
HISTORY_S = DAYS * DAY_S
MOST_NEEDED = 100
"""A start that needs more instances counts as one that needs this many."""
ORGANIZATIONS_KEPT = 100
"""How many organizations a day counts; starts of further ones count without an organization."""
REFILLS_KEPT = 9
"""The refill time is the median of this many."""
FIRST_REFILL_S = 60.0
"""The refill time assumed before the first: that of a cloud's node or of a large environment."""


@dataclass
class _Day:
    """The starts of one day, which begins at `since`."""

    since: float
    needed: Counter[int] = field(default_factory=Counter)
    """The number of starts, by how many instances had to be ready for them."""
    organizations: Counter[str] = field(default_factory=Counter)
    hits: int = 0

    @property
    def starts(self) -> int:
        return self.needed.total()


class StartHistory:
    """The starts on one instance type. `now` never goes back."""

    def __init__(self) -> None:
        self._days: deque[_Day] = deque()
        self._recent: deque[float] = deque(maxlen=MOST_NEEDED)
        """The times of the starts within the last refill time."""
        self._refills_s: deque[float] = deque(maxlen=REFILLS_KEPT)
        self._last_start = -math.inf

    @property
    def refill_s(self) -> float:
        """How long an ordered instance takes until it is ready, seconds."""
        return statistics.median(self._refills_s) if self._refills_s else FIRST_REFILL_S

    def refilled(self, refill_s: float) -> None:
        self._refills_s.append(max(0.0, refill_s))

    def started(self, now: float, hit: bool, organization: str) -> None:
        self._forget(now)
        if not self._days or now - self._days[-1].since >= DAY_S:
            self._days.append(_Day(now))
        while self._recent and now - self._recent[0] >= self.refill_s:
            self._recent.popleft()
        self._recent.append(now)
        self._last_start = now
        day = self._days[-1]
        day.needed[len(self._recent)] += 1
        day.hits += hit
        if organization in day.organizations or len(day.organizations) < ORGANIZATIONS_KEPT:
            day.organizations[organization] += 1

    def idle_s(self, now: float) -> float:
        """Seconds since the last start; inf = there was none."""
        return now - self._last_start

    def needed(self, share: float, now: float) -> int:
        """The least number of ready instances that sufficed for `share` of the starts; 0 without
        any start."""
        self._forget(now)
        counts: Counter[int] = Counter()
        for day in self._days:
            counts.update(day.needed)
        rest = share * counts.total()
        for needed, starts in sorted(counts.items()):
            rest -= starts
            if rest <= 1e-9 * starts:
                return needed
        return 0

    def organizations(self, now: float) -> Counter[str]:
        """The number of starts in seven days, by organization."""
        self._forget(now)
        return sum((day.organizations for day in self._days), Counter[str]())

    def starts(self, now: float) -> int:
        """The number of starts in seven days."""
        self._forget(now)
        return sum(day.starts for day in self._days)

    def hits(self, now: float) -> int:
        """The number of starts in seven days that found an instance ready."""
        self._forget(now)
        return sum(day.hits for day in self._days)

    def to_json(self, now: float) -> dict[str, Any]:
        self._forget(now)
        return {
            "idle_s": None if math.isinf(self._last_start) else round(now - self._last_start, 3),
            "refills_s": [round(refill_s, 3) for refill_s in self._refills_s],
            "days": [
                {
                    "age_s": round(now - day.since, 3),
                    "needed": {
                        str(needed): starts for needed, starts in sorted(day.needed.items())
                    },
                    "organizations": dict(day.organizations),
                    "hits": day.hits,
                }
                for day in self._days
            ],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], now: float) -> StartHistory:
        """Read what `to_json` wrote; raises `MemoryInvalid` for anything else."""
        history = cls()
        try:
            history._refills_s.extend(_amount(each) for each in data["refills_s"])
            if data["idle_s"] is not None:
                history._last_start = now - _amount(data["idle_s"])
            for day in data["days"][-DAYS:]:
                history._days.append(
                    _Day(
                        now - _amount(day["age_s"]),
                        Counter({int(n): int(_amount(s)) for n, s in day["needed"].items()}),
                        Counter({str(o): int(_amount(s)) for o, s in day["organizations"].items()}),
                        int(_amount(day["hits"])),
                    )
                )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise MemoryInvalid(
                f"its starts cannot be read ({error!r}); start without it"
            ) from error
        return history

    def _forget(self, now: float) -> None:
        """Drop days that began seven days ago, as a whole."""
        while self._days and now - self._days[0].since >= HISTORY_S:
            self._days.popleft()


def _amount(value: object) -> float:
    """The value as a number from 0 on. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r} is not a number from 0 on")
    return float(value)
